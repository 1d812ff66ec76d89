"""What counts of words tell of a benchmark's labels: the logistic regression that cards set beside their models.

For another benchmark, with parameters: python examples/bag_of_words.py listops original '{"num_train": 300000}'
For CSV files with a column `label`, name the column of texts after them:
python examples/bag_of_words.py train.csv validation.csv test.csv sentence
"""

# %%
import json
import sys

from datasets import load_dataset
from scipy.sparse import hstack
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import MaxAbsScaler

from hf_recurrent import load_benchmark

words = sys.argv[1:] or ["compositional_table_lookup", "forward"]
if words[0].endswith(".csv"):
    *files, column = words
    splits = load_dataset("csv", data_files=dict(zip(("train", "validation", "test"), files, strict=True)))
    columns = [column]
else:
    name, config, parameters = [*words, "{}"][:3]
    splits = load_benchmark(name, config, **json.loads(parameters))
    columns = [column for column in splits["train"].column_names if column.startswith("text")]

# %% Every run of letters or digits, and every other sign, is a word.
vectorizers = [CountVectorizer(token_pattern=r"\w+|[^\w\s]").fit(splits["train"][column][:]) for column in columns]
counts = {
    split: hstack([own.transform(rows[column][:]) for own, column in zip(vectorizers, columns, strict=True)])
    for split, rows in splits.items()
}
scaler = MaxAbsScaler().fit(counts["train"])
inputs = {split: scaler.transform(each) for split, each in counts.items()}

# %% The strength of the penalty is chosen on the validation split.
fitted = [
    LogisticRegression(C=strength, max_iter=1000).fit(inputs["train"], splits["train"]["label"][:])
    for strength in (0.01, 0.1, 1.0, 10.0)
]
best = max(fitted, key=lambda each: each.score(inputs["validation"], splits["validation"]["label"][:]))
print(f"{', '.join(words)}: {best.coef_.size + best.intercept_.size:,} parameters")
for split, rows in splits.items():
    if split != "train":
        print(f"{split}: {best.score(inputs[split], rows['label'][:]):.1%}")
