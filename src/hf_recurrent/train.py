"""Train in as many processes as accelerate starts, for whatever objective the recipe or the flags call for.

    accelerate launch -m hf_recurrent.train listops_gut --output_dir runs/listops_gut

`hf-recurrent train` does the same in one process.
"""

from .training.run import as_command, run_and_print

if __name__ == "__main__":
    as_command(run_and_print)
