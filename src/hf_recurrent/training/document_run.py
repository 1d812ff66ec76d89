"""Runs of causal language models over long documents, whose state is carried from segment to segment."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from accelerate.utils import set_seed
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from ..analysis.recurrence import PROSE, evaluate_split
from ..analysis.tables import RECURRENCE_FILE, write_tables
from ..files import write_json
from ..hub import CardData
from ..hub.checkpoint import save_checkpoint
from ..hub.comparison import check_finished, compared_cards
from ..inference.processes import from_first
from ..models.common.sharding import is_sharded
from .arguments import DOCUMENT_ARGUMENT_TYPES
from .document_card import document_card, prompt_of
from .document_data import (
    encode_splits,
    load_document_splits,
    load_document_tokenizer,
    require_predictions,
    test_splits,
)
from .document_loop import (
    check_depth_sampling,
    check_segment_length,
    make_accelerator,
    make_session,
    require_constant_state,
    train,
)
from .engine_states import whole_model
from .model import check_model, forget_begin, load_trained, make_config, make_model
from .objectives import LANGUAGE_MODELLING
from .recipes import changes_by_flags, defaults_of, read_recipe, recipe_path
from .run import Run
from .run_folder import SHARES, STEP_SIZE

LOG_FILE = "training_log.json"
# carry -> what is reset from segment to segment
RESET = {"document": "nothing", "segment": "all", "state": "states"}


class DocumentRun(Run):
    """A run over documents, by an own loop over their segments."""

    argument_types = DOCUMENT_ARGUMENT_TYPES

    def __init__(self, argv: Sequence[str]):
        super().__init__(argv)
        self.accelerator = make_accelerator(self.args)
        self.changes = experiment_changes(argv, self.settings, self.accelerator.num_processes)

    @property
    def is_main_process(self) -> bool:
        return self.accelerator.is_main_process

    def main_process_first(self) -> AbstractContextManager:
        return self.accelerator.main_process_first()

    @cached_property
    def identifying_settings(self) -> dict[str, Any]:
        """Those of any run, and the sequences of a step, which another number of processes must keep."""
        size = math.prod(getattr(self.args, name) for name in SHARES)
        return {**super().identifying_settings, STEP_SIZE: size * self.accelerator.num_processes}

    def check(self) -> None:
        data = self.data_args
        data.check_data()
        config = check_model(self.model_args, data)
        check_segment_length(config, data.segment_length)
        check_segment_length(config, data.evaluated_length, "eval_segment_length")
        check_depth_sampling(config)
        require_constant_state(config)
        check_finished(data.compare_with)

    def prepare(self) -> None:
        """Load documents and model, where the last checkpoint left them if there is one.

        Raises:
            ValueError: they cannot be had.
        """
        data, seed = self.data_args, self.args.seed
        with self.main_process_first():
            self.splits = load_document_splits(data)
            self.tokenizer = load_document_tokenizer(self.model_args, data, self.splits["train"])
            # documents are read to their ends
            self.tokenizer.model_max_length = VERY_LARGE_INTEGER
            require_predictions(self.splits, self.tokenizer)
            documents = encode_splits(self.splits, self.tokenizer, data)
        config = make_config(self.model_args, data, self.tokenizer)
        set_seed(seed)
        model = make_model(self.model_args, config, LANGUAGE_MODELLING)
        self.notes = self.beginnings(model)
        set_seed(seed, device_specific=True)
        self.session = make_session(self.accelerator, self.args, data, model, documents)

    def train(self) -> None:
        train(self.session)

    def evaluate(self) -> None:
        """Save the checkpoint, and evaluate it as its users load it."""
        data = self.data_args
        session = self.session
        if is_sharded(session.plain_model):
            whole = whole_model(session.plain_model)
        else:
            whole = self.accelerator.unwrap_model(session.model, keep_fp32_wrapper=False)
        from_first(lambda: self.save(whole))
        self.model = load_trained(self.folder, self.accelerator.device, LANGUAGE_MODELLING)
        self.tables = {
            name: evaluate_split(
                *(self.model, self.tokenizer, split),
                segment_length=data.evaluated_length,
                batch_size=self.args.per_device_eval_batch_size,
                by_words=data.own is not None or data.benchmark_config in PROSE,
                progress=not self.args.disable_tqdm,
            )
            for name, split in test_splits(self.splits).items()
        }

    def save(self, model: Any) -> None:
        """Save the trained model as a checkpoint in the folder, and the log beside it."""
        forget_begin(model)
        save_checkpoint(model, self.folder, self.tokenizer)
        write_json(self.folder / LOG_FILE, self.session.progress.log)

    def results(self) -> tuple[CardData, None]:
        """The card, and no times."""
        data, session, accelerator = self.data_args, self.session, self.accelerator
        progress, first = session.progress, next(iter(test_splits(self.splits).values()))
        write_tables(self.folder, RECURRENCE_FILE, self.tables)
        facts = self.facts(
            progress.seconds,
            progress.steps,
            accelerator.num_processes,
            accelerator.device,
            notes=self.notes,
            start=self.model_args.model_name_or_path,
        )
        card = document_card(
            *(self.model, data, self.report_args, self.tables, facts),
            batch_size=session.reader.num_rows,
            prompt=prompt_of(first[0]["text"]),
            plots=draw(self.folder, self.tables),
        )
        return replace(card, compared=compared_cards(card, data.compare_with)), None

    def summary(self) -> str:
        return summary(self.tables)


def experiment_changes(argv: Sequence[str], settings: dict[str, Any], processes: int) -> list[str]:
    """`changes_by_flags`, without how a step's sequences are shared out if they are as many as in the recipe."""
    changes, path = changes_by_flags(argv, settings, DOCUMENT_ARGUMENT_TYPES), recipe_path(argv)
    if path is None:
        return changes
    defaults = defaults_of(DOCUMENT_ARGUMENT_TYPES)
    recipe = read_recipe(path, defaults)
    before, now = (math.prod(given.get(name, defaults[name]) for name in SHARES) for given in (recipe, settings))
    shared = tuple(f"{name} = " for name in SHARES) if processes * now == before else ()
    return [change for change in changes if not change.startswith(shared)]


def draw(folder: Path, tables: dict[str, dict[str, Any]]) -> list[dict[str, str | None]]:
    """The figures of every split, in `folder`."""
    # only the main process draws, and loads matplotlib
    from ..analysis.plots import save_recurrence_figures

    return [
        {**plot, "split": name}
        for name, table in tables.items()
        for plot in save_recurrence_figures(folder, table, prefix=name)
    ]


def summary(tables: dict[str, dict[str, Any]]) -> str:
    """Plain-text table: a line for each way of carrying states, and each split."""
    lines = [f"{'split':<12} {'reset':<8} {'tokens':>12} {'bits/token':>11} {'bits/byte':>10}"]
    for name, table in tables.items():
        for row in table["carries"]:
            bits = f"{row['bits_per_token']:>11.4f} {row['bits_per_byte']:>10.4f}"
            lines.append(f"{name:<12} {RESET[row['carry']]:<8} {table['tokens']:>12,} {bits}")
    return "\n".join(lines)
