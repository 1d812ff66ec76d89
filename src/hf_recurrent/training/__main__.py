"""`python -m hf_recurrent.training RECIPE.yaml --output_dir runs/x`: train, whatever the recipe's objective is."""

from .run import as_command, run_and_print

if __name__ == "__main__":
    as_command(run_and_print)
