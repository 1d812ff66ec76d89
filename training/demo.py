"""A GUT learns small ListOps in a few minutes on a CPU, and shows what it learned and when it stopped.

    python training/demo.py

Trains by `run_glue_style.py` with `recipes/demo.yaml` into runs/demo (once: a finished run is reused), then loads that
folder as anyone would and lets it answer a few expressions.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import hf_recurrent  # noqa: F401 - makes the Auto classes know gut
from hf_recurrent.benchmarks import normalize_expression
from hf_recurrent.benchmarks.listops.expressions import evaluate

HERE = Path(__file__).parent
EXPRESSIONS = (
    "[MAX 2 9 4]",
    "[MIN 8 1 5 3]",
    "[MIN 7 [MAX 3 6] 8]",
    "[MAX [MIN 5 8 6] [MIN 2 3 9]]",
    "[MIN [MAX 1 [MIN 4 9] 2] 7 5]",
    "[MAX 0 [MIN [MAX 3 [MIN 8 6]] 9] 2]",
)


def train(recipe: Path, folder: Path) -> None:
    script = HERE / "run_glue_style.py"
    subprocess.run([sys.executable, str(script), str(recipe), "--output_dir", str(folder)], check=True)


def answer(folder: Path, expressions: tuple[str, ...]) -> None:
    """Print value, prediction and steps of each expression."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    texts = [normalize_expression(expression) for expression in expressions]
    with torch.no_grad():
        outputs = model(**tokenizer(texts, padding=True, return_tensors="pt"))
    print(f"\n{folder} answers (at most {model.config.num_hidden_layers} steps):\n")
    print(f"{'expression':40s}  value  prediction  confidence  steps")
    confidences, predictions = outputs.logits.softmax(-1).max(-1)
    rows = zip(expressions, texts, predictions, confidences, outputs.ponder_steps, strict=True)
    for expression, text, prediction, confidence, steps in rows:
        label = model.config.id2label[int(prediction)]
        print(f"{expression:40s}  {evaluate(text):5d}  {label:>10s}  {confidence:10.2f}  {int(steps):5d}")
    print(f"\nThe model card with its halting plots is {folder / 'README.md'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=HERE / "recipes" / "demo.yaml")
    parser.add_argument("--output-dir", type=Path, default=Path("runs/demo"))
    args = parser.parse_args()
    train(args.recipe, args.output_dir)
    answer(args.output_dir, EXPRESSIONS)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
