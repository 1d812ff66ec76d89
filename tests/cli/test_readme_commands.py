"""The commands that README gives for a user's own data, as they stand there, on files as it names them."""

import random
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest

README = Path(__file__).parents[2] / "README.md"
# few to learn from and to test on, and as many as calibration needs for the tolerance that README gives
SIZES = {"train": 96, "held_out": 480, "test": 32}

# huggingface_hub passes the bytes of large files in a way that its HTTP client advises against
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")]


def verdicts(number: int, seed: int) -> pd.DataFrame:
    """Reviews whose verdict depends on one word and on whether it is negated."""
    draw = random.Random(seed)
    rows = []
    for _ in range(number):
        good, negated = draw.random() < 0.5, draw.random() < 0.5
        words = ["it", "was", *["not"] * negated, "good" if good else "bad"]
        rows.append({"review": " ".join(words), "verdict": "positive" if good != negated else "negative"})
    return pd.DataFrame(rows)


@pytest.mark.filterwarnings("ignore:the texts give a vocabulary:UserWarning")
def test_train_calibrate_publish(run, hub, tmp_path, monkeypatch):
    section = README.read_text().partition("## Your own data")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    train, calibrate, publish = (
        shlex.split(line) for line in block.replace("\\\n", "").splitlines() if line.startswith("hf-recurrent ")
    )
    monkeypatch.chdir(tmp_path)
    for seed, (name, number) in enumerate(SIZES.items()):
        verdicts(number, seed).to_csv(f"{name}.csv", index=False)
    on_a_cpu = ["--use_cpu", "true", "--disable_tqdm", "true", "--learning_rate", "3e-3"]
    status, _, err = run(*train[1:], *on_a_cpu)
    assert status == 0, err
    status, out, err = run(*calibrate[1:])
    assert status == 0, err
    assert "certified" in out
    # of an account that the local hub has
    status, _, err = run(*publish[1:-1], publish[-1].replace("your-name", "org"))
    assert status == 0, err
    assert {"model.safetensors", "README.md"} <= hub.repository("org/verdicts").head().files.keys()
