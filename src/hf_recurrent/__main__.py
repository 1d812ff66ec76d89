"""`python -m hf_recurrent`: the command `hf-recurrent`."""

from .cli import main

if __name__ == "__main__":
    main()
