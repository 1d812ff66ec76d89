"""Models, rows and recipes of a few tokens, to train on sources and targets in seconds."""

import torch
from datasets import Dataset

from hf_recurrent.benchmarks.sequence_tokenizers import word_tokenizer
from hf_recurrent.models.sut.configuration_sut import SUTConfig
from hf_recurrent.models.sut.modeling_sut import SUTForConditionalGeneration
from hf_recurrent.training.arguments import Seq2SeqArguments
from hf_recurrent.training.collator import PairCollator
from hf_recurrent.training.metrics import compute_seq2seq_metrics
from hf_recurrent.training.seq2seq_trainer import RecurrentSeq2SeqTrainer

PAD, END = 0, 3
SIZES = {
    "halting": "token",
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "attention_experts": 3,
    "attention_experts_per_token": 2,
    "num_attention_heads": 1,
    "head_dim": 8,
    "feed_forward_experts": 3,
    "feed_forward_experts_per_token": 2,
    "intermediate_size": 12,
    "relative_window": 1,
}
DROPOUTS = ("dropout", "attention_dropout", "activation_dropout", "router_dropout")
NO_DROPOUT = dict.fromkeys(DROPOUTS, 0.0)
# a run with dropout, halting, averaging, and several evaluations and checkpoints on the way
TINY_PAIRS = {
    "model_type": "sut",
    "config": {**SIZES, "label_smoothing": 0.1},
    "benchmark": "logical_inference_translation",
    "benchmark_params": {"num_train": 64, "num_validation": 8, "num_test": 12},
    "learning_rate": 0.01,
    "lr_schedule": "inverse_sqrt_fairseq",
    "warmup_steps": 4,
    "max_tokens": 400,
    "gradient_accumulation_steps": 2,
    "max_steps": 6,
    "eval_strategy": "steps",
    "eval_steps": 2,
    "save_strategy": "steps",
    "save_steps": 2,
    "logging_steps": 2,
    "load_best_model_at_end": True,
    "average_checkpoints": 2,
    "use_cpu": True,
    "disable_tqdm": True,
}


def pair_model(**changes):
    """The same each time, in training mode."""
    torch.manual_seed(0)
    fields = {**SIZES, **NO_DROPOUT, "vocab_size": 12, "pad_token_id": PAD, "bos_token_id": 2, "eos_token_id": END}
    return SUTForConditionalGeneration(SUTConfig(is_encoder_decoder=True, **{**fields, **changes}))


def pair_rows(count: int, seed: int = 0, longest: int = 5) -> list[dict[str, list[int]]]:
    """Sources of 2 to 6 tokens and targets of up to `longest`, ends counted; lengths differ from row to row."""
    generator = torch.Generator().manual_seed(seed)

    def text(least: int, most: int) -> list[int]:
        length = int(torch.randint(least, most + 1, (), generator=generator))
        return [*torch.randint(4, 12, (length,), generator=generator).tolist(), END]

    rows = [{"input_ids": text(1, 5), "labels": text(1, longest - 1)} for _ in range(count)]
    return [{**row, "attention_mask": [1] * len(row["input_ids"])} for row in rows]


def pair_tokenizer():
    """Of as many words as the models know."""
    return word_tokenizer([f"w{number}" for number in range(8)])


def pair_trainer(folder, rows, model=None, **options) -> RecurrentSeq2SeqTrainer:
    defaults = {
        "max_steps": 4,
        "per_device_train_batch_size": 4,
        "logging_steps": 1,
        "save_strategy": "no",
        "learning_rate": 0.05,
        "optim": "sgd",
        "max_grad_norm": 0.0,
        "lr_scheduler_type": "constant",
        "train_sampling_strategy": "sequential",
    }
    args = Seq2SeqArguments(
        output_dir=str(folder), use_cpu=True, disable_tqdm=True, report_to="none", **{**defaults, **options}
    )
    return RecurrentSeq2SeqTrainer(
        model=pair_model() if model is None else model,
        args=args,
        data_collator=PairCollator(pair_tokenizer()),
        train_dataset=Dataset.from_list(rows),
        eval_dataset=Dataset.from_list(pair_rows(7, seed=5)),
        compute_metrics=compute_seq2seq_metrics,
    )
