"""Small runs over long documents: corpora, models and sessions of seconds."""

import random

from accelerate.utils import set_seed

from hf_recurrent.documents import TokenDocuments
from hf_recurrent.registry import ARCHITECTURES
from hf_recurrent.training.arguments import DocumentArguments, DocumentTrainingArguments
from hf_recurrent.training.document_loop import make_accelerator, make_session
from support.documents import write_texts

VOCAB_SIZE = 24
SIZES = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "pad_token_id": 0,
    "dropout": 0.0,
}
HEADS = {"num_attention_heads": 2, "intermediate_size": 24, "attention_dropout": 0.0}
CHUNKS = {**HEADS, "chunk_size": 4, "num_memory_slots": 3}
WINDOWS = {**HEADS, "window_size": 4, "num_state_vectors": 3}
MODELS = {"tlb": CHUNKS, "gutlb": {**CHUNKS, "halting": "global"}, "rnn": {}, "block_recurrent": WINDOWS}

# two windows a segment
TINY_DOCUMENTS = {
    "model_type": "block_recurrent",
    "config": {
        "hidden_size": 16,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "window_size": 8,
        "num_state_vectors": 4,
    },
    "benchmark_config": "folder",
    "segment_length": 16,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "per_device_eval_batch_size": 2,
    "max_steps": 8,
    "warmup_steps": 2,
    "logging_steps": 2,
    "eval_steps": 4,
    "save_steps": 3,
    "use_cpu": True,
    "disable_tqdm": True,
}


def token_corpus(*lengths: int, seed: int = 0) -> TokenDocuments:
    """Documents that repeat what they began with, so that there is something to learn."""
    rng = random.Random(seed)
    documents = []
    for length in lengths:
        phrase = [rng.randrange(3, VOCAB_SIZE) for _ in range(5)]
        documents.append([phrase[place % 5] for place in range(length)])
    return TokenDocuments(documents)


def language_model(model_type: str, **changes):
    set_seed(1)
    family = ARCHITECTURES[model_type]
    config = family.config_class(**{**SIZES, **MODELS.get(model_type, HEADS), **changes})
    return family.model_class("AutoModelForCausalLM")(config)


def training_arguments(folder, **changes) -> DocumentTrainingArguments:
    defaults = {
        "per_device_train_batch_size": 2,
        "per_device_eval_batch_size": 2,
        "max_steps": 6,
        "warmup_steps": 2,
        "logging_steps": 2,
        "save_steps": 3,
        "use_cpu": True,
        "disable_tqdm": True,
    }
    return DocumentTrainingArguments(output_dir=str(folder), **{**defaults, **changes})


def session_of(folder, model, documents, segment_length: int = 8, accelerator=None, **changes):
    args = training_arguments(folder, **changes)
    data = DocumentArguments(segment_length=segment_length)
    accelerator = make_accelerator(args) if accelerator is None else accelerator
    set_seed(args.seed, device_specific=True)
    return make_session(accelerator, args, data, model, documents)


def tiny_texts(folder):
    """Documents of 30 to 300 bytes, one of which is not ASCII, and a split in which one is shorter than a segment."""
    return write_texts(folder, {"train": 7, "validation": 2, "test": 3}, 5, 50)
