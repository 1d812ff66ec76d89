"""A `calibration.json` as `hf-recurrent calibrate` writes it, made up: one more step for each level of difficulty."""

from hf_recurrent.analysis.tables import CALIBRATION_FILE
from hf_recurrent.files import write_json

DEPTHS = (1, 2, 3, 4)


def make_calibration(**changes):
    """Steps 3, 4, 5 and 6 at depths 1 to 4 of the split `test`, and 7 and 8 at depths 5 and 6 of `far`."""
    fields = {
        "benchmark": "listops",
        "benchmark_config": "original",
        "split": "validation",
        "n": 1_000,
        "tolerance": 0.01,
        "confidence": 0.95,
        "risk": "lost",
        "budget": None,
        "max_depth": 16,
        "batch_size": 64,
        "device": "CPU, 1 thread",
        "repeats": 3,
        "timed_examples": 512,
        "difficulty": "depth",
        "full_depth": {"accuracy": 0.75, "mean_depth": 16.0, "seconds": 2.5},
        "fixed_depths": [
            {"max_depth": 4, "accuracy": 0.5, "relative_time": 0.26},
            {"max_depth": 8, "accuracy": 0.75, "relative_time": 0.51},
        ],
        "criteria": {
            "convergence": {"curve": [curve_row(0.5, safe=False), curve_row(0.25)], "chosen": 0.25},
            "stability": {"curve": [curve_row(None, patience=2, safe=False)], "chosen": None},
        },
        "chosen": {"criterion": "convergence", "threshold": 0.25, "patience": 1, "min_depth": 1},
        "tests": {
            "test": split_check(DEPTHS, spearman=0.97),
            "far": split_check((5, 6), spearman=0.5, accuracy=0.5, risk=0.03),
        },
    }
    return {**fields, **changes}


def curve_row(threshold, patience=1, safe=True):
    return {
        "threshold": threshold,
        "patience": patience,
        "accuracy": 0.7475,
        "mean_depth": 4.5,
        "seconds": 0.8,
        "relative_time": 0.32,
        "disagreement": 0.004,
        "lost": 3 if safe else 30,
        "risk": 0.003 if safe else 0.03,
        "p_value": 0.01 if safe else 1.0,
        "safe": safe,
    }


def split_check(depths, spearman, accuracy=0.748, risk=0.002):
    # deeper ones are harder
    middle = sum(depths) / len(depths)
    accuracies = [None if accuracy is None else accuracy + 0.1 * (middle - depth) for depth in depths]
    rows = [
        {"value": str(depth), "n": 100, "accuracy": own, "full_accuracy": 0.75, "mean_depth": depth + 2.0}
        for depth, own in zip(depths, accuracies, strict=True)
    ]
    return {
        "n": 100 * len(depths),
        "accuracy": accuracy,
        "full_accuracy": 0.75,
        "risk": risk,
        "mean_depth": sum(depths) / len(depths) + 2,
        "relative_time": 0.3,
        "spearman": spearman,
        "by_difficulty": rows,
        "examples": [
            {"text": f"[MAX {depth} | 2 ]", "steps": depth + 2, "label": "7", "prediction": "7", "difficulty": depth}
            for depth in depths
        ],
    }


def write_calibration(folder, **changes):
    """Put a calibration beside a card -> its content."""
    calibration = make_calibration(**changes)
    write_json(folder / CALIBRATION_FILE, calibration)
    return calibration
