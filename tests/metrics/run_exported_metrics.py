"""Runs exported metrics where this package cannot be imported; the results go to results.json.

The working directory holds one folder for each metric, `org/` with the same as Spaces, and `cases.json`.
"""

import doctest
import importlib
import json
import re
import sys
from pathlib import Path

PACKAGE = "hf_recurrent"
EXAMPLE = re.compile(r"^```python\n(>>> .*?)^```", re.MULTILINE | re.DOTALL)


class NoPackage:
    """Finds nothing of the package, as if it were not installed."""

    def find_spec(self, name, *_):
        if name.partition(".")[0] == PACKAGE:
            raise ModuleNotFoundError(f"{name} is blocked")


def batches(columns, sizes):
    """Batches of the given sizes; a column that has ended is left out."""
    start = 0
    for size in sizes:
        yield {name: values[start : start + size] for name, values in columns.items() if values[start:]}
        start += size


def compute(metric, case):
    for batch in batches(case["columns"], case.get("batches", [])):
        metric.add_batch(**batch)
    return metric.compute(**({} if "batches" in case else case["columns"]), **case["arguments"])


def one_by_one(metric, case):
    singular = {"predictions": "prediction", "references": "reference"}
    columns = {singular.get(name, name): values for name, values in case["columns"].items()}
    for values in zip(*columns.values(), strict=True):
        metric.add(**dict(zip(columns, values, strict=True)))
    return metric.compute(**case["arguments"])


def message(function, *arguments):
    try:
        return f"no error but {function(*arguments)}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def documentation_failures(name, text):
    (example,) = EXAMPLE.findall(text)
    report = []
    test = doctest.DocTestParser().get_doctest(example, {}, name, None, 0)
    result = doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    return {"attempted": result.attempted, "report": "".join(report)}


def on_arrays(evaluate):
    """Results from arrays and tensors, as in an evaluation loop."""
    import numpy as np
    import torch

    steps = torch.tensor([[2, 4, -1], [3, -1, -1], [1, 1, 5]])
    accuracy = evaluate.load("accuracy_by_slice")
    accuracy.add_batch(predictions=torch.tensor([1, 2]), references=np.array([1, 1]), slices=np.array([3, 4]))
    bits = evaluate.load("bits_per_token")
    losses, mask = torch.tensor([[0.5, 9.0], [0.25, 0.25]]), torch.tensor([[True, False], [True, True]])
    return {
        "halting_statistics": evaluate.load("halting_statistics").compute(steps=steps, max_steps=5),
        "accuracy_by_slice": accuracy.compute(),
        "bits_per_token": bits.compute(negative_log_likelihoods=losses, mask=mask),
    }


def main():
    cases = json.loads(Path("cases.json").read_text())
    blocker = NoPackage()
    sys.meta_path.insert(0, blocker)
    import evaluate
    from evaluate.loading import get_imports

    results = {"blocked": message(importlib.import_module, PACKAGE), "metrics": {}}
    for name in cases["names"]:
        metric = evaluate.load(str(Path(name).absolute()))
        results["metrics"][name] = {
            "class": type(metric).__name__,
            "module": type(metric).__module__,
            "columns": metric._feature_names(),
            "description": metric.description,
            "citation": metric.citation,
            "imports": [imported[:2] for imported in get_imports(f"{name}/{name}.py")],
            "readme": documentation_failures(name, Path(name, "README.md").read_text()),
            "space_readme": documentation_failures(name, Path("org", name, "README.md").read_text()),
        }
    loaded = {name: evaluate.load(name) for name in cases["names"]}
    results["good"] = [compute(loaded[case["name"]], case) for case in cases["good"]]
    results["single"] = [one_by_one(loaded[case["name"]], case) for case in cases["good"]]
    # in memory, because a failed `compute` leaves its file locked for a while
    results["bad"] = [message(compute, type(loaded[case["name"]])(keep_in_memory=True), case) for case in cases["bad"]]
    results["arrays"] = on_arrays(evaluate)

    sys.meta_path.remove(blocker)
    results["direct"] = []
    for case in cases["good"]:
        module = importlib.import_module(f"{PACKAGE}.metrics.metric_{case['name']}")
        metric = getattr(module, results["metrics"][case["name"]]["class"])(keep_in_memory=True)
        results["direct"].append(compute(metric, case))
    Path("results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
