"""Runs over long documents, whose state is carried from segment to segment: truncated backpropagation.

Each sequence of the batch goes on in its document with its own state, and gradients stop at segments. Shapes: B
sequences of a process, N tokens a segment; G groups of B / G sequences.
"""

import logging
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, GradientAccumulationPlugin, set_seed
from tqdm.auto import tqdm
from transformers import TrainingArguments, get_scheduler
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from ..analysis.losses import evaluate_documents
from ..data.segments import DocumentReader, Segment
from ..deploy.processes import in_step, shared_after_training
from ..hub.checkpoint import first_not_finite
from ..models.ops.losses import NO_TARGET
from ..models.ops.sharding import is_sharded
from ..registry import ARCHITECTURES
from ..tasks.base import Split
from ..utils import write_json
from .document_checkpoint import Progress, load_training_state, save_training_state
from .model import check_model, make_config
from .optimization import SCHEDULES, MomentumAdafactor, make_schedule
from .run_folder import DivergedError, checkpoint_to_resume
from .sharding import check_sharding
from .stages import Run

LOG_FILE = "training_log.json"


class DocumentRun(Run):
    """A run over documents, by a loop over their segments."""

    # no splits of examples
    splits = None

    def start(self) -> torch.device:
        """Make the accelerator of one or several processes; precision is that of the arguments."""
        # it would warn at each checkpoint that tied weights are kept once
        logging.getLogger("accelerate.utils.other").setLevel(logging.ERROR)
        # an earlier run in this process may have had another precision or engine
        AcceleratorState._reset_state(reset_partial_state=True)
        self.accelerator = Accelerator(
            cpu=self.args.use_cpu,
            mixed_precision="bf16" if self.args.bf16 else "no",
            gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1, sync_with_dataloader=False),
            # it would move once for each process
            step_scheduler_with_optimizer=False,
        )
        return self.accelerator.device

    def check(self) -> None:
        data = self.task.data
        data.check_files()
        config = check_model(self.model_args, self.task)
        if self.accelerator.distributed_type == DistributedType.FSDP:
            check_sharding(config, self.accelerator.state.fsdp_plugin)
        for name, length in {
            "segment_length": data.segment_length,
            "eval_segment_length": data.evaluated_length,
        }.items():
            check_segment_length(config, length, name)
        check_segments(config)

    def prepare(self) -> None:
        """Load documents and model, where the last checkpoint left them if there is one.

        Raises:
            ValueError: they cannot be loaded, or the checkpoint does not fit.
        """
        task, args = self.task, self.args
        with self.accelerator.main_process_first():
            self.documents = task.document_splits()
            self.tokenizer = task.load_tokenizer(self.model_args)
            # documents are read to their ends
            self.tokenizer.model_max_length = VERY_LARGE_INTEGER
            encoded = task.encoded(self.documents, self.tokenizer)
        config = make_config(self.model_args, task, self.tokenizer)
        model = self.new_model(config)
        set_seed(args.seed, device_specific=True)
        groups, process = args.gradient_accumulation_steps, self.accelerator.process_index
        # of this process's part of the documents
        make_reader = partial(
            DocumentReader,
            segment_length=task.data.segment_length,
            shard=(process, self.num_processes),
            pad_token_id=config.pad_token_id,
            predict_across_segments=task.data.predict_across_segments,
        )
        size = groups * args.per_device_train_batch_size
        self.reader = make_reader(encoded["train"], size, shuffle_seed=args.seed, rewind=True)
        self.validation = None
        if args.eval_steps is not None:
            if "validation" not in encoded:
                raise ValueError(f"eval_steps is set, but {task.data.name} has no validation documents")
            self.validation = make_reader(encoded["validation"], args.per_device_eval_batch_size)
        self.caches = [model.model.new_cache() for _ in range(groups)]
        if args.optim == "adafactor":
            optimizer: torch.optim.Optimizer = MomentumAdafactor(model.parameters(), lr=args.learning_rate)
        else:
            betas, decay = (args.adam_beta1, args.adam_beta2), args.weight_decay
            optimizer = torch.optim.AdamW(
                model.parameters(), args.learning_rate, betas, args.adam_epsilon, weight_decay=decay
            )
        make = make_schedule if args.lr_schedule in SCHEDULES else get_scheduler
        warmup = TrainingArguments.get_warmup_steps(args, args.max_steps)
        schedule = make(args.lr_schedule, optimizer, warmup, args.max_steps)
        self.wrapped, self.optimizer, self.schedule = self.accelerator.prepare(model, optimizer, schedule)
        checkpoint = checkpoint_to_resume(self.folder, args.resume_from_checkpoint)
        self.progress = Progress() if checkpoint is None else load_training_state(self, checkpoint)
        # (2,) nats and tokens of steps that are not among the progress yet
        self.sums = torch.zeros(2, device=self.device, dtype=torch.float64)

    @property
    def plain_model(self) -> Any:
        """The model without the wrapper for several processes."""
        return self.accelerator.unwrap_model(self.wrapped)

    def train(self) -> None:
        """Take all steps that are left; evaluate, log and save on the way and at the end."""
        args, progress = self.args, self.progress
        self.wrapped.train()
        start = time.perf_counter() - progress.seconds
        hidden = args.disable_tqdm or not self.is_main_process
        with tqdm(total=args.max_steps, initial=progress.steps, disable=hidden, desc="training", unit="step") as bar:
            while progress.steps < args.max_steps:
                self.take_step()
                bar.update()
                last = progress.steps == args.max_steps
                if progress.steps % args.logging_steps == 0 or last:
                    bar.set_postfix(bits_per_token=f"{self.log_training():.3f}")
                if self.validation is not None and (progress.steps % args.eval_steps == 0 or last):
                    self.validate(bar.write)
                if progress.steps % args.save_steps == 0 or last:
                    progress.seconds = time.perf_counter() - start
                    self.add_up()
                    # the last good checkpoint must stay the last one
                    if (name := first_not_finite(self.plain_model)) is not None:
                        raise self.diverged(f"the weight {name}")
                    save_training_state(self)

    def take_step(self) -> None:
        """One optimiser step on the next segment of every sequence."""
        try:
            sums = train_step(self.accelerator, self.wrapped, self.reader.next_segment(), self.caches)
        except ValueError as error:
            raise self.broken(error) from error
        if self.args.max_grad_norm:
            self.accelerator.clip_grad_norm_(self.wrapped.parameters(), self.args.max_grad_norm)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        self.progress.steps += 1
        self.sums += sums

    def add_up(self) -> None:
        """Add the losses of all processes since the last call to the progress."""
        nats, tokens = self.accelerator.reduce(self.sums).tolist()
        self.progress.nats += nats
        self.progress.tokens += int(tokens)
        self.sums = torch.zeros_like(self.sums)
        if not math.isfinite(self.progress.nats):
            raise self.diverged("the loss")

    def log_training(self) -> float:
        """Add an entry to the log -> bits per token since the last."""
        self.add_up()
        progress = self.progress
        bits = progress.nats / max(progress.tokens, 1) / math.log(2)
        found = {"bits_per_token": bits, "tokens": progress.tokens, "learning_rate": self.schedule.get_last_lr()[0]}
        progress.log.append({"step": progress.steps, **found})
        progress.nats, progress.tokens = 0.0, 0
        return bits

    def validate(self, write: Callable[[str], None]) -> None:
        """Add the losses on the validation documents, each read from its beginning, to the log.

        Each process reads its part of them.
        """
        model, segments = self.plain_model, self.validation
        if is_sharded(model):
            segments = in_step(segments, segments.segment([False] * segments.num_rows), model.device)
        try:
            with shared_after_training():
                losses = evaluate_documents(model, segments)
        except ValueError as error:
            raise self.broken(error) from error
        bits, step = losses.bits_per_token, self.progress.steps
        self.progress.log.append({"step": step, "validation_bits_per_token": bits})
        if self.is_main_process:
            write(f"step {step}: validation {bits:.4f} bits per token ({losses.num_tokens:,} tokens)")
        self.wrapped.train()

    def broken(self, error: ValueError) -> Exception:
        """The error to raise for one of the model: if there are NaN, one that names the step; else the error itself."""
        broken = "NaN" in str(error) or first_not_finite(self.plain_model) is not None
        return self.diverged("a weight or state") if broken else error

    def diverged(self, what: str) -> DivergedError:
        return DivergedError(self.folder, self.progress.steps, what)

    def outcome(self) -> Any:
        write_json(self.folder / LOG_FILE, self.progress.log)
        depth = self.whole.config.num_hidden_layers
        self.facts = {"seconds": self.progress.seconds, "steps": self.progress.steps, "trained_depth": depth}
        return self.whole

    def evaluated_splits(self) -> list[Split]:
        return self.task.evaluated(self.documents)


def check_segments(config: Any) -> None:
    """Raise a ValueError for a model that cannot take a document of any length in segments."""
    if config.capabilities.growing_cache:
        able = [name for name, other in ARCHITECTURES.items() if not other.config_class().capabilities.growing_cache]
        raise ValueError(
            f"model_type is {config.model_type!r}, whose cache grows with the document: expected one whose state is of "
            f"constant size: {', '.join(able)}"
        )
    if config.capabilities.division not in (None, "fixed"):
        raise ValueError(
            f"config.chunking is {config.chunking!r}, which looks at the whole document at once: expected 'fixed'"
        )
    drawn = getattr(config, "depth_sampling", "fixed")
    if drawn != "fixed":
        raise ValueError(
            f"config field `depth_sampling` is {drawn!r}, but all segments of a document take the same number of "
            "steps: leave it 'fixed'"
        )


def check_segment_length(config: Any, segment_length: int, name: str = "segment_length") -> None:
    """Raise a ValueError if the model has windows and a segment does not consist of whole ones."""
    window = config.capabilities.window_size
    if window is not None and segment_length % window:
        raise ValueError(
            f"{name} is {segment_length} and config.window_size {window}: a segment must consist of whole "
            f"windows, such as {max(round(segment_length / window), 1) * window}"
        )


def train_step(accelerator: Accelerator, model: torch.nn.Module, segment: Segment, caches: list[Any]) -> torch.Tensor:
    """Add the gradients of a segment's mean loss, over all labelled tokens of all processes and groups, to `model`.

    The segment's sequences are as many groups as there are `caches`, which are computed one after another; each cache
    is replaced by the next one. A ponder loss is a mean over sequences and weighs as much in each group.

    Returns:
        (2,) nats and tokens that this process has predicted, on its device.
    """
    groups = len(caches)
    size = segment.input_ids.shape[0] // groups
    everywhere = accelerator.reduce((segment.labels != NO_TARGET).sum().to(accelerator.device)).clamp_min(1)
    sums = torch.zeros(2, device=accelerator.device, dtype=torch.float64)
    for group in range(groups):
        part = segment.rows(slice(group * size, (group + 1) * size)).to(accelerator.device)
        with accelerator.no_sync(model) if group + 1 < groups else nullcontext():
            outputs = model(
                input_ids=part.input_ids,
                attention_mask=part.attention_mask,
                shift_labels=part.labels,
                start_of_document=part.start_of_document,
                past_key_values=caches[group],
                use_cache=True,
                detach=True,
            )
            tokens = (part.labels != NO_TARGET).sum()
            ponder = 0.0 if outputs.aux_loss is None else outputs.aux_loss
            prediction = outputs.loss - ponder
            # gradients are means over processes: each contributes its fraction times their number
            fraction = tokens / everywhere * accelerator.num_processes
            accelerator.backward(prediction * fraction + ponder / groups)
        caches[group] = outputs.past_key_values
        sums += torch.stack([prediction.detach().double() * tokens, tokens.double()])
    return sums
