"""From a recipe to an encoder-decoder model in a folder that can be published: what `run_seq2seq.py` does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerState, set_seed

from ..hub import check_access
from ..hub.checkpoint import save_checkpoint
from .changes import changes_by_flags
from .data import Splits
from .ending import finish, publish, publishing
from .evaluation import Evaluation, summary
from .model import check_evaluation_depth, load_trained, make_config, make_model
from .objectives import SEQ2SEQ, require_objective
from .recipes import parse
from .run import adopt_depth, one_or_all, run_facts, stopping, train
from .run_folder import checkpoint_to_resume, claim, released_if_refused
from .selection import check_selection, selection_of
from .seq2seq_arguments import SEQ2SEQ_ARGUMENT_TYPES, PairArguments, PairReportArguments, Seq2SeqArguments
from .seq2seq_averaging import best_checkpoints, load_average
from .seq2seq_card import pair_card
from .seq2seq_data import PairCollator, load_pair_tokenizer, load_pairs
from .seq2seq_evaluation import Decoding, evaluate_pairs
from .seq2seq_scores import require_scores
from .seq2seq_trainer import RecurrentSeq2SeqTrainer
from .trainer import TrainingClock


def run(argv: Sequence[str]) -> str | None:
    """Train, evaluate and, if asked to, publish; or go on with what an earlier call left in `output_dir`.

    Returns:
        What to tell the user; None on every process but the main one.

    Raises:
        FileNotFoundError, ValueError: the recipe, a flag, the data or the folder is not as it should be.
        DivergedError: a loss or weight is no longer a finite number.
        PublishError: publishing failed.
    """
    # 1. the recipe, checked before anything is loaded
    (model_args, data_args, run_args, args), settings = parse(argv, SEQ2SEQ_ARGUMENT_TYPES)
    changes = changes_by_flags(argv, settings, SEQ2SEQ_ARGUMENT_TYPES)
    require_objective(SEQ2SEQ, data_args.benchmark)
    require_scores(data_args)
    folder = Path(args.output_dir)

    # 2. the output folder: another run's is refused, our own is gone on with
    with args.main_process_first():
        finished = claim(folder, settings)
    # the Trainer would send checkpoints on the way, with optimiser states
    publish_at_end, args.push_to_hub = args.push_to_hub and args.process_index == 0, False
    if finished:
        report = [f"{folder} holds this very run, finished: nothing to train"]
        return "\n".join([*report, publish(folder, args)] if publish_at_end else report)
    if publish_at_end:
        # what would stop it should be known before the hours of training
        check_access(**publishing(args))

    # 3. model and data
    with released_if_refused(folder):
        checkpoint = checkpoint_to_resume(folder, args.resume_from_checkpoint)
        with args.main_process_first():
            tokenizer = load_pair_tokenizer(model_args, data_args, checkpoint)
            splits = load_pairs(data_args, tokenizer)
        config = make_config(model_args, data_args.benchmark, tokenizer)
        set_seed(args.seed)
        trainer = make_trainer(args, make_model(model_args, config, SEQ2SEQ), tokenizer, splits)

    # 4. training, from the last complete checkpoint if there is one
    model, state, clock = train(trainer, checkpoint, SEQ2SEQ)
    if not trainer.is_world_process_zero():
        return None

    # 5. the checkpoint, its evaluation, its card, and last the mark that the run is complete
    evaluation = leave(trainer, (model, state, clock), splits, (argv, settings, changes), (data_args, run_args))
    report = [publish(folder, args)] if publish_at_end else []
    return "\n".join([*report, summary(evaluation, clock.epochs if run_args.timing else None)])


def leave(
    trainer: RecurrentSeq2SeqTrainer,
    trained: tuple[Any, TrainerState, TrainingClock],
    splits: Splits,
    asked: tuple[Sequence[str], dict[str, Any], Sequence[str]],
    told: tuple[PairArguments, PairReportArguments],
) -> Evaluation:
    """Leave a folder that can be published.

    Args:
        trained: what `train` returned.
        asked: the words of the command, the settings that they and the recipe make, and what they change of the recipe.
        told: the arguments of data and report.
    """
    (model, state, clock), (argv, settings, changes), (data, report), args = trained, asked, told, trainer.args
    folder, tokenizer = Path(args.output_dir), trainer.processing_class
    averaged = best_checkpoints(state, args)
    if averaged:
        load_average(model, [checkpoint / "model.safetensors" for checkpoint in averaged])
    depth = adopt_depth(model.config, args.evaluation_depth)

    # what a reader of the checkpoint gets is evaluated
    decoding = Decoding(args.generation_num_beams or 1, args.generation_length_penalty, args.generation_max_length)
    decoding.set(model)
    save_checkpoint(model, folder, tokenizer)
    wall_time = clock.seconds
    model = load_trained(folder, args.device, SEQ2SEQ)
    evaluation = evaluate_pairs(
        *(model, tokenizer, splits.evaluation, folder, data, report, decoding),
        batch_size=args.per_device_eval_batch_size,
    )

    facts = run_facts(
        *(argv, args, wall_time, state.global_step),
        changes=changes,
        selection=selection_of(state, args, list(splits.validation)),
        trained_depth=depth,
        averaged=sorted(int(checkpoint.name.rpartition("-")[2]) for checkpoint in averaged),
    )
    timing = {"epoch_seconds": clock.epochs, "evaluation_seconds": evaluation.seconds} if report.timing else None
    longest = splits.evaluation[0].longest_target
    card = pair_card(model, data, report, evaluation, facts, decoding, longest)
    finish(folder, settings, card, report, timing)
    return evaluation


def make_trainer(args: Seq2SeqArguments, model: Any, tokenizer: Any, splits: Splits) -> RecurrentSeq2SeqTrainer:
    """The trainer of a run, whose settings fit the model and the data.

    Raises:
        ValueError: they do not.
    """
    check_evaluation_depth(model.config, args.evaluation_depth)
    check_selection(args, list(splits.validation))
    return RecurrentSeq2SeqTrainer(
        model=model,
        args=args,
        data_collator=PairCollator(tokenizer),
        train_dataset=splits.train,
        # metrics of a single split go without its name
        eval_dataset=one_or_all(splits.validation),
        processing_class=tokenizer,
        compute_metrics=SEQ2SEQ.compute_metrics,
        callbacks=[TrainingClock(), *stopping(args)],
    )
