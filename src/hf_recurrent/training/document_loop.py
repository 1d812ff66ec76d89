"""The training loop over long documents, evaluated and saved on the way.

Each sequence of the batch goes on in its document with its own state, and gradients stop at segments. Shapes: B
sequences of a process, N tokens a segment; G groups of B / G sequences.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, GradientAccumulationPlugin, KwargsHandler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from tqdm.auto import tqdm
from transformers import get_scheduler

from ..analysis.losses import Losses
from ..analysis.recurrence import evaluate_documents
from ..documents import DocumentReader, Segment, TokenDocuments
from ..inference.processes import in_step, shared_after_training
from ..models.common.sharding import is_sharded
from ..models.common.token_targets import NO_TARGET
from ..registry import ARCHITECTURES
from .arguments import DocumentArguments, DocumentTrainingArguments
from .document_checkpoint import Progress, find_checkpoint, keep_last, load_training_state, save_training_state
from .engine_checks import check_fsdp_plugin
from .model import first_not_finite
from .optimization import SCHEDULES, MomentumAdafactor, make_schedule
from .trainer import DivergedError


def require_constant_state(config: Any) -> None:
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


def check_depth_sampling(config: Any) -> None:
    """Raise a ValueError if depth is to be drawn: the segments of a document share a cache, and so their depth."""
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


@dataclass
class Session:
    """The state of a training loop, and the reader of the documents to validate on, if there are any."""

    accelerator: Accelerator
    args: DocumentTrainingArguments
    model: torch.nn.Module
    optimizer: Optimizer
    schedule: LRScheduler
    reader: DocumentReader
    caches: list[Any]
    validation: DocumentReader | None = None
    progress: Progress = field(default_factory=Progress)
    sums: list[torch.Tensor] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return Path(self.args.output_dir)

    @property
    def plain_model(self) -> Any:
        """The model without the wrapper for several processes."""
        return self.accelerator.unwrap_model(self.model)


def make_accelerator(args: DocumentTrainingArguments, handlers: Sequence[KwargsHandler] = ()) -> Accelerator:
    """The accelerator of one or several processes; precision and accumulation are those of `args`.

    Raises:
        ValueError: the launcher asks for FSDP on CPUs, or in a way that leaves no whole checkpoint.
    """
    # an earlier run in this process may have had another precision or engine
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(
        cpu=args.use_cpu,
        mixed_precision="bf16" if args.bf16 else "no",
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1, sync_with_dataloader=False),
        # it would move once for each process
        step_scheduler_with_optimizer=False,
        kwargs_handlers=list(handlers),
    )
    if accelerator.distributed_type == DistributedType.FSDP:
        check_fsdp_plugin(accelerator.state.fsdp_plugin)
    return accelerator


def make_optimizer(model: torch.nn.Module, args: DocumentTrainingArguments) -> tuple[Optimizer, LRScheduler]:
    """Optimiser and schedule by their names; weight decay is on all parameters."""
    if args.optim == "adafactor":
        optimizer: Optimizer = MomentumAdafactor(model.parameters(), lr=args.learning_rate)
    else:
        betas = (args.adam_beta1, args.adam_beta2)
        optimizer = torch.optim.AdamW(
            model.parameters(), args.learning_rate, betas, args.adam_epsilon, weight_decay=args.weight_decay
        )
    if args.lr_schedule in SCHEDULES:
        return optimizer, make_schedule(args.lr_schedule, optimizer, args.warmup_steps, args.max_steps)
    return optimizer, get_scheduler(args.lr_schedule, optimizer, args.warmup_steps, args.max_steps)


def make_reader(
    accelerator: Accelerator, documents: TokenDocuments, data: DocumentArguments, pad_token_id: int, **options: Any
) -> DocumentReader:
    """The reader of this process's part of the documents."""
    return DocumentReader(
        documents,
        segment_length=data.segment_length,
        shard=(accelerator.process_index, accelerator.num_processes),
        pad_token_id=pad_token_id,
        predict_across_segments=data.predict_across_segments,
        **options,
    )


def make_session(
    accelerator: Accelerator,
    args: DocumentTrainingArguments,
    data: DocumentArguments,
    model: Any,
    documents: dict[str, TokenDocuments],
) -> Session:
    """The state of training, at its beginning or as the last checkpoint of `args.output_dir` has it.

    Raises:
        ValueError: the documents cannot be read so, or the checkpoint does not fit.
    """
    groups, pad = args.gradient_accumulation_steps, model.config.pad_token_id
    reader = make_reader(
        *(accelerator, documents["train"], data, pad),
        batch_size=groups * args.per_device_train_batch_size,
        shuffle_seed=args.seed,
        rewind=True,
    )
    validation = None
    if args.eval_steps is not None:
        if "validation" not in documents:
            raise ValueError(
                f"eval_steps is {args.eval_steps}, but {data.benchmark_config} has no validation documents"
            )
        held_out = documents["validation"]
        validation = make_reader(accelerator, held_out, data, pad, batch_size=args.per_device_eval_batch_size)
    optimizer, schedule = make_optimizer(model, args)
    caches = [model.model.new_cache() for _ in range(groups)]
    session = Session(
        *(accelerator, args, *accelerator.prepare(model, optimizer, schedule), reader, caches, validation),
        progress=Progress(groups=groups),
    )
    checkpoint = find_checkpoint(session.folder, args.resume_from_checkpoint)
    if checkpoint is not None:
        prepared = (session.plain_model, session.optimizer)
        session.progress = load_training_state(accelerator, checkpoint, *prepared, reader, caches)
    return session


def train(session: Session) -> None:
    """Take all steps that are left; evaluate, log and save on the way and at the end.

    Raises:
        DivergedError: a loss or weight is no longer a finite number.
    """
    args, progress, accelerator = session.args, session.progress, session.accelerator
    session.model.train()
    before, start = progress.seconds, time.perf_counter()
    hidden = args.disable_tqdm or not accelerator.is_main_process
    with tqdm(total=args.max_steps, initial=progress.steps, disable=hidden, desc="training", unit="step") as bar:
        while progress.steps < args.max_steps:
            take_step(session)
            bar.update()
            last = progress.steps == args.max_steps
            if progress.steps % args.logging_steps == 0 or last:
                bar.set_postfix(bits_per_token=f"{log_training(session):.3f}")
            if session.validation is not None and (progress.steps % args.eval_steps == 0 or last):
                validate(session, bar.write)
            if progress.steps % args.save_steps == 0 or last:
                progress.seconds = before + time.perf_counter() - start
                save(session)
    if accelerator.is_main_process:
        # a run that was killed before it did so
        keep_last(session.folder, args.save_total_limit)


def take_step(session: Session) -> None:
    """One optimiser step on the next segment of every sequence."""
    try:
        sums = train_step(session.accelerator, session.model, session.reader.next_segment(), session.caches)
    except ValueError as error:
        raise broken(session, error) from error
    if session.args.max_grad_norm is not None:
        session.accelerator.clip_grad_norm_(session.model.parameters(), session.args.max_grad_norm)
    session.optimizer.step()
    session.schedule.step()
    session.optimizer.zero_grad()
    session.progress.steps += 1
    session.sums.append(sums)


def add_up(session: Session) -> None:
    """Add the losses of all processes since the last call to the progress."""
    if session.sums:
        nats, tokens = session.accelerator.reduce(torch.stack(session.sums).sum(0)).tolist()
        session.progress.nats += nats
        session.progress.tokens += int(tokens)
        session.sums = []
    if not math.isfinite(session.progress.nats):
        raise diverged(session, "the loss")


def log_training(session: Session) -> float:
    """Add an entry to the log -> bits per token since the last."""
    add_up(session)
    progress = session.progress
    bits = progress.nats / max(progress.tokens, 1) / math.log(2)
    rate = session.schedule.get_last_lr()[0]
    progress.log.append(
        {"step": progress.steps, "bits_per_token": bits, "tokens": progress.tokens, "learning_rate": rate}
    )
    progress.nats, progress.tokens = 0.0, 0
    return bits


def validate(session: Session, write: Callable[[str], None]) -> None:
    """Add the losses on the validation documents, each read from its beginning, to the log."""
    try:
        losses = evaluate_share(session.plain_model, session.validation)
    except ValueError as error:
        raise broken(session, error) from error
    bits = losses.bits_per_token
    session.progress.log.append({"step": session.progress.steps, "validation_bits_per_token": bits})
    if session.accelerator.is_main_process:
        write(f"step {session.progress.steps}: validation {bits:.4f} bits per token ({losses.num_tokens:,} tokens)")
    session.model.train()


def evaluate_share(model: Any, reader: DocumentReader) -> Losses:
    """Losses on all documents, of which each process reads its part."""
    segments = in_step(reader, reader.padding(), model.device) if is_sharded(model) else reader
    with shared_after_training():
        return evaluate_documents(model, segments)


def save(session: Session) -> None:
    add_up(session)
    # the last good checkpoint must stay the last one
    name = first_not_finite(session.plain_model)
    if name is not None:
        raise diverged(session, f"the weight {name}")
    save_training_state(
        *(session.accelerator, session.folder, session.plain_model, session.progress),
        *(session.reader, session.caches),
        keep=session.args.save_total_limit,
    )


def broken(session: Session, error: ValueError) -> Exception:
    """The error to raise for one of the model: if there are NaN, one that names the step; else the error itself."""
    if first_not_finite(session.plain_model) is not None:
        return diverged(session, "a weight")
    return diverged(session, "a state") if "NaN" in str(error) else error


def diverged(session: Session, what: str) -> DivergedError:
    checkpoint = find_checkpoint(session.folder, None) or "none yet"
    return DivergedError(
        f"step {session.progress.steps}: {what} is not a finite number. Last good checkpoint: {checkpoint}. Lower "
        "learning_rate, lengthen warmup_steps or set max_grad_norm, in a new output_dir"
    )
