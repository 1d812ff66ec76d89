"""Publish a checkpoint: python upload.py OUTPUT_FOLDER org/gut-listops [--dry-run] [--private] [--revision B] [--tag T]

The same as `hf-recurrent publish`; `--help` lists the options.
"""

import sys

import typer

from hf_recurrent.cli.console import run
from hf_recurrent.cli.publish import publish

if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(publish)
    sys.exit(run(lambda: app(standalone_mode=False)))
