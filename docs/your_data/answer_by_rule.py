"""What answers to the questions of make_python_questions.py are worth that no model gives.

    python docs/your_data/answer_by_rule.py

Exact match and F1, as of SQuAD, on questions_test.jsonl in the working folder, of

- frequent: the answer that questions of the same kind have most often in training;
- search: a regular expression for each kind, which takes the first match: what stands after the name and `=` up to a
  comma, bracket or the line's end, after `in` up to a colon, or after `return`.
"""

# ruff: noqa: T201

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hf_recurrent.metrics.answers import exact_match, f1

QUESTIONS = {
    "default": r"What is (.+) by default\?",
    "set": r"What is (.+) set to\?",
    "passed": r"What is passed as (.+) to (.+)\?",
    "loop": r"What does (.+) run over\?",
    "returned": r"What is returned\?",
}
PLACES = {
    "default": r"\b{0}\b[^,=]*=\s*([^,)\n]+)",
    "set": r"(?m)^\s*{0}\s*=\s*(.+)$",
    "passed": r"(?s)\b{1}\(.*?\b{0}\s*=\s*([^,)]+)",
    "loop": r"\bfor {0} in (.+?):",
    "returned": r"\breturn (.+)",
}


def searched(example: dict) -> str:
    """The first match, or nothing."""
    kind = example["kind"]
    names = map(re.escape, re.fullmatch(QUESTIONS[kind], example["question"]).groups())
    found = re.search(PLACES[kind].format(*names), example["context"])
    return found[1] if found else ""


def read(split: str) -> list[dict]:
    return [json.loads(line) for line in Path(f"questions_{split}.jsonl").read_text(encoding="utf-8").splitlines()]


def frequent(examples: list[dict]) -> Callable[[dict], str]:
    """A function that answers a question of each kind alike."""
    counts = {kind: Counter() for kind in PLACES}
    for example in examples:
        counts[example["kind"]].update(example["answers"]["text"])
    answers = {kind: count.most_common(1)[0][0] for kind, count in counts.items()}
    return lambda example: answers[example["kind"]]


def main() -> None:
    tests = read("test")
    for name, answer in {"frequent": frequent(read("train")), "search": searched}.items():
        for kind in ("all", *PLACES):
            own = [example for example in tests if kind in ("all", example["kind"])]
            pairs = [(answer(example), example["answers"]["text"]) for example in own]
            matches, scores = (sum(score(*pair) for pair in pairs) / len(pairs) for score in (exact_match, f1))
            print(f"{name:<9} {kind:<9} {len(own):>6,} {100 * matches:6.1f} {100 * scores:6.1f}")


if __name__ == "__main__":
    main()
