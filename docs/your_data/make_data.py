"""Write the data of docs/experiments.md into the working folder.

    python docs/your_data/make_data.py movie_reviews.zip

- reviews/{train,validation,test}/{pos,neg}: film reviews (Pang and Lee 2004, "polarity dataset v2.0"), from NLTK.
- pairs_{train,validation,test}.csv: the last 60 words of two reviews, and which of the reviewers liked the film better.
- sentences_{train,validation,test}.csv: the sentences of the reviews, each with the label of its review.
- wordpiece: a tokenizer like BERT's, trained on the reviews of reviews/train.
- dates_{train,validation,test}.jsonl: days of 1950 to 2029 as people write them, and their ISO 8601 form.
"""

import csv
import datetime
import json
import random
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

# numbers of the reviews of each label, and how often each is paired
PARTS = {"train": (0, 800, 8), "validation": (800, 900, 2), "test": (900, 1000, 4)}
# words of the shortest sentences that are kept
SHORTEST = 5
FORMS = {
    "iso-like": "{d:%Y/%m/%d}",
    "day first": "{d:%d.%m.%Y}",
    "month name": "{d.day} {d:%B %Y}",
    "short month": "{d:%b} {d.day}, {d:%Y}",
    "ordinal": "the {d.day}{end} of {d:%B}, {d:%Y}",
    "weekday": "{d:%A}, {d:%B} {d.day}{end}, {d:%Y}",
}
SIZES = {"train": (0, 8000), "validation": (8000, 8500), "test": (8500, 9500)}


def write_reviews(archive: str) -> None:
    """Write the reviews of an archive with the folders `pos` and `neg`."""
    with zipfile.ZipFile(archive) as files:
        names = sorted(name for name in files.namelist() if name.endswith(".txt"))
        for label in ("pos", "neg"):
            reviews = [name for name in names if name.split("/")[-2] == label]
            for part, (start, stop, _) in PARTS.items():
                folder = Path("reviews", part, label)
                folder.mkdir(parents=True, exist_ok=True)
                for name in reviews[start:stop]:
                    folder.joinpath(Path(name).name).write_bytes(files.read(name))


def write_sentences() -> None:
    """Write the sentences of the reviews; those of one review are all in one part."""
    for part in PARTS:
        with open(f"sentences_{part}.csv", "w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["sentence", "label", "review"])
            for path in sorted(Path("reviews", part).rglob("*.txt")):
                for line in path.read_text(encoding="utf-8").splitlines():
                    if len(words := line.split()) >= SHORTEST:
                        rows.writerow((" ".join(words), path.parent.name, path.stem))


def write_pairs() -> None:
    """Write pairs of endings of reviews, one that likes a film and one that does not."""
    draw = random.Random(0)
    for part, (_, _, times) in PARTS.items():
        endings = {label: endings_of(Path("reviews", part, label)) for label in ("pos", "neg")}
        with open(f"pairs_{part}.csv", "w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["review", "other_review", "better"])
            for _ in range(times):
                for good, bad in zip(*(draw.sample(texts, len(texts)) for texts in endings.values()), strict=True):
                    rows.writerow((good, bad, "first") if draw.random() < 0.5 else (bad, good, "second"))


def endings_of(folder: Path) -> list[str]:
    return [" ".join(path.read_text(encoding="utf-8").split()[-60:]) for path in sorted(folder.glob("*.txt"))]


def train_wordpiece() -> None:
    """Train and save a tokenizer of BERT's kind."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertTokenizerFast

    tokenizer = BertWordPieceTokenizer(lowercase=True)
    tokenizer.train_from_iterator(review_texts(), vocab_size=4000, show_progress=False)
    BertTokenizerFast(tokenizer_object=tokenizer._tokenizer).save_pretrained("wordpiece")


def review_texts() -> Iterator[str]:
    for path in sorted(Path("reviews", "train").rglob("*.txt")):
        yield path.read_text(encoding="utf-8")


def write_dates() -> None:
    """Write days in random forms."""
    draw = random.Random(0)
    days = [datetime.date(1950, 1, 1) + datetime.timedelta(number) for number in range(29220)]
    draw.shuffle(days)
    for part, (start, stop) in SIZES.items():
        with open(f"dates_{part}.jsonl", "w", encoding="utf-8") as file:
            for day in days[start:stop]:
                form = draw.choice(list(FORMS))
                end = "th" if 10 < day.day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
                row = {"written": FORMS[form].format(d=day, end=end), "iso": day.isoformat(), "form": form}
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    write_reviews(*sys.argv[1:])
    write_sentences()
    write_pairs()
    train_wordpiece()
    write_dates()
