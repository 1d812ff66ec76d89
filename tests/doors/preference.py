"""TRL's trainers, on a causal model."""

from datasets import Dataset
from transformers import AutoModelForCausalLM

from hf_recurrent import save_checkpoint
from support.tokenizer import make_tokenizer

from .door import Room
from .models import ENCODERS, LANGUAGE, live
from .training import arguments, train

ROOM = Room("TRL")
TEXTS = ["w4 w9 w5", "w7 w8 w9", "w23 w11 w6 w8 w9 w4", "w5 w5", "w10 w12 w6", "w9 w9 w9 w4"]
PACKAGES = ["trl"]


@ROOM.door("SFTTrainer", ENCODERS, PACKAGES)
def enter_fine_tuning(architecture, folder):
    from trl import SFTConfig, SFTTrainer

    train(
        SFTTrainer(
            live(architecture, LANGUAGE),
            SFTConfig(**arguments(folder, max_length=16)),
            train_dataset=Dataset.from_dict({"text": TEXTS}),
            processing_class=make_tokenizer(),
        )
    )


@ROOM.door("DPOTrainer", ENCODERS, PACKAGES)
def enter_preferences(architecture, folder):
    from trl import DPOConfig, DPOTrainer

    pairs = {"prompt": TEXTS, "chosen": TEXTS[::-1], "rejected": TEXTS[2:] + TEXTS[:2]}
    train(
        DPOTrainer(
            # its reference model is loaded from where the model was
            AutoModelForCausalLM.from_pretrained(save_checkpoint(live(architecture, LANGUAGE), folder / "start")),
            args=DPOConfig(**arguments(folder, max_length=16)),
            train_dataset=Dataset.from_dict(pairs),
            processing_class=make_tokenizer(),
        )
    )
