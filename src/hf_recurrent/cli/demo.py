"""`hf-recurrent demo`: a small model learns to apply functions, and takes more steps where there are more of them.

A chain is a value and functions that are applied to it in turn: `3 a c` is c(a(3)). A Neural Data Router ("The Neural
Data Router", Csordás et al., 2022) is trained on chains of one to five functions, calibrated, and tested on chains of
one to nine. No label says how many steps to take.
"""

import math
import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm.auto import trange
from transformers import PreTrainedTokenizerBase, set_seed

from .. import NDRConfig, NDRForSequenceClassification
from ..analysis.calibration import Examples, Goal, apply_calibration
from ..analysis.calibration import calibrate as calibrated
from ..benchmarks.sequence_tokenizers import word_tokenizer
from ..hub.checkpoint import save_checkpoint
from ..hub.results import CALIBRATION_FILE
from ..utils import percent, write_json
from .calibrate import test_cells, verdict
from .console import out, quiet_libraries, show_rows, wrote
from .shared import conditions

# the value that each function gives for 0, 1, 2 and 3
FUNCTIONS = {"a": (3, 1, 0, 2), "b": (3, 1, 2, 0), "c": (2, 3, 0, 1)}
VALUES = 4
TRAINED, TESTED = range(1, 6), range(1, 10)
# one in so many of the longer chains that training could draw is held out; there are few shorter ones
HELD_OUT, SHORT = 8, 2
# steps of training, and the most that a chain of nine functions may take
TRAINED_STEPS, MOST_STEPS = 10, 12
BATCH_SIZE = 64
# chains of calibration and of the test, in two batches each: in small batches the exit costs more than it saves
CALIBRATED, HALF = 1000, 500
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": TRAINED_STEPS,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "gate_bias_init": -1.0,
    # without it models answer the chains of training, and fail on longer ones
    "gate_dropout": 0.3,
    # the answer is read after every step, so that each step may be the last
    "depth_objective": "every_step",
    "step_weights": "uniform",
    "num_labels": VALUES,
}


class Chain(NamedTuple):
    """A value, and the names of the functions that are applied to it in turn."""

    start: int
    functions: str

    @property
    def text(self) -> str:
        return " ".join((str(self.start), *self.functions))

    @property
    def value(self) -> int:
        value = self.start
        for function in self.functions:
            value = FUNCTIONS[function][value]
        return value

    @property
    def in_training(self) -> bool:
        """Whether training may draw it."""
        length = len(self.functions)
        return length in TRAINED and (length <= SHORT or zlib.crc32(self.text.encode()) % HELD_OUT > 0)


def draw(rng: random.Random, lengths: Sequence[int], training: bool) -> Chain:
    """A chain that training may draw, or one that it may not; the latter may be short, too."""
    length = rng.choice(lengths)
    while True:
        chain = Chain(rng.randrange(VALUES), "".join(rng.choices("".join(FUNCTIONS), k=length)))
        if chain.in_training == training or length <= SHORT:
            return chain


def encode(tokenizer: PreTrainedTokenizerBase, chains: Sequence[Chain]) -> dict[str, torch.Tensor]:
    """A batch with `labels`."""
    batch = tokenizer([chain.text for chain in chains], padding=True, return_tensors="pt")
    return {**batch, "labels": torch.tensor([chain.value for chain in chains])}


def examples(tokenizer: PreTrainedTokenizerBase, seed: int) -> Examples:
    """Chains of one to nine functions, the longer of which training has not seen."""
    rng = random.Random(seed)
    chains = sorted(
        (draw(rng, TESTED, training=False) for _ in range(CALIBRATED)), key=lambda each: len(each.functions)
    )
    batches = [encode(tokenizer, half) for half in (chains[:HALF], chains[HALF:])]
    return Examples(batches, [chain.text for chain in chains], [len(chain.functions) for chain in chains])


def train(model: NDRForSequenceClassification, tokenizer: PreTrainedTokenizerBase, seed: int, max_steps: int) -> None:
    """Train a model on short chains first: long ones need functions that the model knows."""
    rng, optimizer = random.Random(seed), torch.optim.AdamW(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / 50) * (1 + math.cos(math.pi * step / max_steps)) / 2
    )
    model.train()
    for step in (bar := trange(max_steps, desc="training", mininterval=1)):
        lengths = TRAINED[: 1 + int(len(TRAINED) * step / (0.6 * max_steps))]
        loss = model(**encode(tokenizer, [draw(rng, lengths, training=True) for _ in range(BATCH_SIZE)])).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
    model.eval()


def compare(found: dict[str, Any]) -> None:
    """Print accuracy and steps by the number of functions, and the fixed number of steps that is as accurate."""
    test, rows = found["tests"]["test"], []
    for row in [*test["by_difficulty"], {**test, "value": "all"}]:
        longer = row["value"] != "all" and int(row["value"]) not in TRAINED
        rows.append({"functions": row["value"] + " *" * longer, **test_cells(row)})
    show_rows(f"{test['n']:,} fresh chains, at full depth ({found['max_depth']} steps) and with an early exit", rows)
    out.print("* longer than any chain of training")
    out.print(f"The early exit takes {percent(test['relative_time'])} of the time of full depth.")
    out.print(*verdict(found)[1:], sep="\n", markup=False)


def run_demo(folder: Path, seed: int, max_steps: int) -> None:
    """Train, calibrate, test and save a model, and print what came of it.

    Raises:
        ValueError: no confidence is high enough to stop early.
    """
    # matrices this small are no work for two threads
    torch.set_num_threads(1)
    # closed gates make numbers so small that processors are slow with them
    torch.set_flush_denormal(True)
    quiet_libraries()
    set_seed(seed)
    tokenizer = word_tokenizer([*map(str, range(VALUES)), *FUNCTIONS])
    model = NDRForSequenceClassification(
        NDRConfig(
            **SIZES,
            vocab_size=len(tokenizer),
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    out.print(f"Functions of 0 to 3: {FUNCTIONS}. So `3 a c`, c(a(3)), is {Chain(3, 'ac').value}.", markup=False)
    out.print(f"A Neural Data Router of {model.num_parameters():,} parameters learns chains of 1 to 5 functions.")
    train(model, tokenizer, seed, max_steps)
    out.print(f"It is calibrated on {CALIBRATED:,} chains of 1 to 9 functions. Those of 3 or more are not in training.")
    validation, test = examples(tokenizer, seed + 1), examples(tokenizer, seed + 2)
    goal = Goal(batch_sizes=(HALF,), repeats=1)
    ways = {"criteria": ["confidence"], "only_exits": True, "max_depth": MOST_STEPS}
    found = calibrated(model, validation, {"test": test}, goal, **ways)
    if found["chosen"] is None:
        raise ValueError(
            f"after {max_steps} steps of training no confidence is high enough to stop early: train for longer "
            "(--max-steps)"
        )
    apply_calibration(model, found, benchmark="chains", config="demo", split="validation")
    compare({**found, **conditions(model)})
    save_checkpoint(model, folder, tokenizer)
    write_json(folder / CALIBRATION_FILE, found)
    wrote(folder)
