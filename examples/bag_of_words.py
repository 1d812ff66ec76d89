"""What counts of words tell of a benchmark's labels: the logistic regression that cards set beside their models.

Another benchmark: python examples/bag_of_words.py listops original
"""

# %%
import sys

from scipy.sparse import hstack
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import MaxAbsScaler

from hf_recurrent import load_benchmark

name, config = sys.argv[1:] or ("compositional_table_lookup", "forward")
splits = load_benchmark(name, config)
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
print(f"{name}, {config}: {best.coef_.size + best.intercept_.size:,} parameters")
for split, rows in splits.items():
    if split != "train":
        print(f"{split}: {best.score(inputs[split], rows['label'][:]):.1%}")
