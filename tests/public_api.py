"""How users call the package, for the type checker of `make check`; nothing here runs."""

from pathlib import Path
from typing import Literal

from transformers import PreTrainedModel
from typing_extensions import assert_type

from hf_recurrent import (
    ARCHITECTURES,
    GUTConfig,
    GUTForCausalLM,
    GUTForMaskedLM,
    GUTForMultipleChoice,
    GUTForQuestionAnswering,
    GUTForTokenClassification,
    GUTModel,
    SUTConfig,
    SUTForConditionalGeneration,
    evaluate,
    load_benchmark,
    save_checkpoint,
)
from hf_recurrent.convert import load_authors

config = GUTConfig(vocab_size=32, hidden_size=64, halting="token", halting_threshold=0.9)
assert_type(config.hidden_size, int)
assert_type(config.halting_threshold, float)
assert_type(config.halting, Literal["token", "global", "none"])
assert_type(GUTConfig.preset("tiny", vocab_size=100), GUTConfig)
# mistakes that a type checker finds: an unused `ignore` is an error
GUTConfig(halting="act")  # type: ignore[arg-type]
GUTConfig(hidden_sizes=64)  # type: ignore[call-arg]

assert_type(GUTModel(config), GUTModel)
assert_type(GUTForCausalLM.from_pretrained("folder"), GUTForCausalLM)
assert_type(GUTForTokenClassification.from_pretrained("folder"), GUTForTokenClassification)
assert_type(GUTForMaskedLM(config), GUTForMaskedLM)
assert_type(GUTForQuestionAnswering(config), GUTForQuestionAnswering)
assert_type(GUTForMultipleChoice(config), GUTForMultipleChoice)
translator: PreTrainedModel = SUTForConditionalGeneration(SUTConfig(is_encoder_decoder=True))
assert_type(save_checkpoint(translator, Path("folder")), Path)

assert_type(load_authors("folder"), PreTrainedModel)

evaluate(translator, load_benchmark("listops", split="test"), "translation", batch_size=8).examples["steps"]
load_benchmark("listops", "length_generalization", split="test", num_proc=2, num_test=100)
load_benchmark("listops", splits="test")
assert_type(ARCHITECTURES["gut"].paper, str)
