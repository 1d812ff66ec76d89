"""Bad input is a ValueError (or the strict dataclass's own) that names the argument, its value and the remedy.

Each rule is tested once, on one class that has it; then each architecture once, for following the rules.
"""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError

from hf_recurrent import ARCHITECTURES, GUTConfig, GUTLBConfig, UTConfig, UTForSequenceClassification, UTModel
from support.families import BY_NAME, TINY, VOCAB_SIZE, make_batch, make_config, make_model

CONFIG_ERRORS = (ValueError, StrictDataclassError)
# of a Transformer, experts, a layer with a window, an LSTM and a DNC
BLOCK_PARAMETERS = (
    "feed_forward.up_proj.weight",
    "experts.up_proj",
    "layers.0.up_proj.weight",
    "lstm.weight_hh_l0",
    "interface_proj.bias",
)

WRONG_FIELDS = [
    ({"num_attention_heads": 3}, "`num_attention_heads` is 3: it must divide hidden_size .32."),
    ({"head_dim": 7}, "`head_dim` is 7: .*must be even"),
    ({"vocab_size": -1}, "`vocab_size` is -1: it must be at least 1"),
    ({"dropout": 1.0}, r"`dropout` is 1.0: it must be in \[0, 1\)"),
    ({"pad_token_id": VOCAB_SIZE}, r"`pad_token_id` is 24: it must be in \[0, 24\)"),
    ({"initializer_range": -0.1}, "`initializer_range` is -0.1: it must be at least 0"),
    ({"pooling": "max"}, "`pooling` is 'max': it must be 'mean' or '(end' or 'cls|last)'"),
    ({"hidden_size": "32"}, "`hidden_size` is '32': it must be int"),
    ({"hidden_dropout_prob": 0.5}, "no field `hidden_dropout_prob`: did you mean `dropout`"),
    ({"num_atention_heads": 2}, "no field `num_atention_heads`: did you mean `num_attention_heads`"),
]
WRONG_CHUNKS = [
    ({"chunk_size": 0}, "`chunk_size` is 0: it must be at least 1"),
    ({"chunking": "even"}, "`chunking` is 'even': it must be 'fixed' or 'balanced' or 'count'"),
    ({"pooling": "end"}, "`pooling` is 'end': it must be 'mean' or 'last'"),
]
WRONG_HALTING = [
    ({"halting_threshold": 0.0}, r"`halting_threshold` is 0.0: it must be in \(0, 1\]"),
    ({"halting_threshold": float("nan")}, "`halting_threshold` is nan"),
    ({"halting_bias_init": float("nan")}, "`halting_bias_init` is nan: it must be a finite number"),
    ({"halting": "act"}, "`halting` is 'act': it must be 'token' or 'global' or 'none'"),
    ({"ponder_loss_weight": -0.1}, "`ponder_loss_weight` is -0.1: it must be at least 0"),
]


@pytest.mark.parametrize(("fields", "message"), WRONG_FIELDS + WRONG_HALTING)
def test_wrong_config(fields, message):
    with pytest.raises(CONFIG_ERRORS, match=message):
        GUTConfig(**{**TINY, **fields})


@pytest.mark.parametrize(("fields", "message"), WRONG_CHUNKS)
def test_wrong_chunks(fields, message):
    with pytest.raises(CONFIG_ERRORS, match=message):
        GUTLBConfig(**{**TINY, **fields})


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_config_follows_the_rules(architecture):
    """One mistake for each group of fields that a class has."""
    config_class = ARCHITECTURES[architecture].config_class
    mistakes = {
        "vocab_size": -1,
        "head_dim": 0,
        "dropout": 1.0,
        "pooling": "max",
        "xpos_scale_base": 0,
        "halting_threshold": 2.0,
        "chunk_size": 0,
        "gate_intermediate_size": 0,
    }
    for field, value in mistakes.items():
        if field in config_class.__dataclass_fields__:
            with pytest.raises(CONFIG_ERRORS, match=field):
                config_class(**{**TINY, field: value})
    with pytest.raises(ValueError, match="no field `hiden_size`: did you mean `hidden_size`"):
        config_class(hiden_size=32)


def test_configs_and_checkpoints_of_another_architecture_are_refused(tmp_path):
    with pytest.raises(TypeError, match="config is of GUTConfig: UTModel takes UTConfig"):
        UTModel(make_config(BY_NAME["gut"]))
    make_config(BY_NAME["gut"]).save_pretrained(tmp_path)
    for reader in (UTConfig, UTModel, UTForSequenceClassification):
        with pytest.raises(ValueError, match="model_type is 'gut': UTConfig reads 'ut'; load it by Auto"):
            reader.from_pretrained(tmp_path)


def test_a_config_of_ones_own_reads_the_checkpoint_of_the_architecture_it_extends(tmp_path):
    class OwnConfig(UTConfig):
        model_type = "own_ut"

    make_config(BY_NAME["ut"]).save_pretrained(tmp_path)
    own = OwnConfig.from_pretrained(tmp_path)
    assert isinstance(own, OwnConfig)
    assert own.hidden_size == TINY["hidden_size"]
    assert UTModel(own).config is own


def test_assignments_are_checked_too():
    config = make_config(BY_NAME["gut"])
    for field, value in (("halting", "act"), ("halting_threshold", 2.0), ("problem_type", "guess")):
        with pytest.raises(CONFIG_ERRORS, match=f"`{field}` is {value!r}: it must"):
            setattr(config, field, value)
    with pytest.raises(CONFIG_ERRORS, match="`num_labels` is 0: it must be at least 1"):
        config.num_labels = 0


def without(batch, *names):
    return {name: value for name, value in batch.items() if name not in names}


def all_padding_row(batch):
    mask = batch["attention_mask"].clone()
    mask[3] = 0
    return {**batch, "attention_mask": mask}


# mistake -> what it does to a batch, what the error says
WRONG_INPUTS = {
    "id_too_large": (
        lambda batch: {**batch, "input_ids": batch["input_ids"] + 5},
        r"`input_ids` holds ids from \d+ to 28 but `config.vocab_size` is 24: .*tokenizer",
    ),
    "all_padding_row": (all_padding_row, r"`attention_mask` row 3 is all padding: drop the row"),
    "narrow_mask": (
        lambda batch: {**batch, "attention_mask": batch["attention_mask"][:, :4]},
        r"`attention_mask` has shape \(10, 4\) but the inputs have \(10, 9\): pass one 0 or 1 per token",
    ),
    "no_tokens": (
        lambda batch: {name: value if name == "labels" else value[:, :0] for name, value in batch.items()},
        r"`input_ids` has shape \(10, 0\): pass at least one sequence and one token",
    ),
    "float_ids": (
        lambda batch: {**batch, "input_ids": batch["input_ids"].float()},
        "`input_ids` is a Tensor of torch.float32 with shape",
    ),
    "flat_embeddings": (
        lambda batch: {**without(batch, "input_ids"), "inputs_embeds": torch.zeros(9, 32)},
        r"`inputs_embeds` is a Tensor of torch.float32 with shape \(9, 32\): pass a floating-point tensor",
    ),
    "mask_of_halves": (
        lambda batch: {**batch, "attention_mask": batch["attention_mask"] * 0.5},
        "`attention_mask` holds 0.5: pass 0 or 1 for each token",
    ),
    "one_label": (lambda batch: {**batch, "labels": torch.tensor(1)}, r"`labels` is a Tensor .* with shape \(\): pass"),
    "neither_input": (lambda batch: without(batch, "input_ids"), "pass exactly one of `input_ids` and `inputs_embeds`"),
    "flat_ids": (
        lambda batch: {"input_ids": batch["input_ids"].flatten(), "token_type_ids": torch.zeros(1, 1).long()},
        r"`input_ids` is a Tensor of torch.int64 with shape \(90,\): pass a tensor \(batch, tokens\)",
    ),
    "labels_of_another_batch": (
        lambda batch: {**batch, "labels": batch["labels"][:7]},
        r"`labels` has shape \(7,\): expected \(10,\)",
    ),
    "float_labels_for_classes": (
        lambda batch: {**batch, "labels": batch["labels"].float()},
        r"`labels` has shape \(10,\): expected \(10, 3\) for multi_label_classification with 3 labels",
    ),
    "class_out_of_range": (
        lambda batch: {**batch, "labels": batch["labels"] + 3},
        "`labels` holds 3 among its classes, but `config.num_labels` is 3",
    ),
    "attentions_of_sdpa": (
        lambda batch: {**batch, "output_attentions": True},
        "output_attentions=True: the 'sdpa' implementation .*set_attn_implementation..eager",
    ),
}


def test_wrong_input(model, variant, batch, subtests):
    for mistake, (change, message) in WRONG_INPUTS.items():
        if mistake == "attentions_of_sdpa" and "sdpa" not in variant.implementations:
            continue
        with subtests.test(mistake), pytest.raises(ValueError, match=message):
            model(**change(batch))


@pytest.mark.parametrize("name", ["attention_maks", "past_key_values", "use_cache", "pooling", "answer_head"])
def test_arguments_that_a_classifier_does_not_have(name):
    variant = BY_NAME["gut"]
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        make_model(variant)(**make_batch(variant), **{name: True})


WRONG_OPTIONS = [
    ({"max_depth": 1.5}, "max_depth is 1.5: it must be int"),
    ({"max_depth": 10**20}, "max_depth is 1000.*: it must be at most 10000, .* set HF_RECURRENT_MAX_LAYERS"),
    ({"halting_threshold": 1.5}, "`halting_threshold` is 1.5"),
    ({"halting_threshold": torch.tensor([0.5, 0.4])}, r"`halting_threshold` is a Tensor of torch.float32 .*\(2,\)"),
    ({"exit_criterion": ["probe"]}, r"exit_criterion is \['probe'\]: expected one of"),
]


def test_wrong_option_of_a_call(halting_variant, subtests):
    model, batch = make_model(halting_variant), make_batch(halting_variant)
    for options, message in WRONG_OPTIONS:
        with subtests.test(str(options)), pytest.raises(ValueError, match=message):
            model(**batch, **options)


def test_the_limit_of_depth_can_be_raised(monkeypatch):
    monkeypatch.setenv("HF_RECURRENT_MAX_LAYERS", "20000")
    model = make_model(BY_NAME["ut"]).base_model
    assert model.new_cache(max_depth=10_001).depth == 10_001
    with pytest.raises(ValueError, match="max_depth is 20001: it must be at most 20000"):
        model.new_cache(max_depth=20_001)


@pytest.mark.parametrize("options", [{"max_depth": 2}, {"halting_threshold": 0.5}])
@pytest.mark.parametrize("name", ["xpos_transformer", "tlb", "block_recurrent", "rnn_lstm", "rnn_dnc"])
def test_fixed_layers_have_no_halting_options(name, options):
    variant = BY_NAME[name]
    ((option, value),) = options.items()
    with pytest.raises(ValueError, match=f"{option} is {value}: layers of this model are not shared"):
        make_model(variant)(**make_batch(variant), **options)


@pytest.mark.parametrize("name", ["xpos_transformer_siamese", "ut_siamese", "gut_siamese", "gutlb_siamese"])
def test_pairs_need_two_sentences(name):
    model, batch = make_model(BY_NAME[name]), make_batch(BY_NAME[name])
    with pytest.raises(ValueError, match=r"needs `token_type_ids` .*tokenizer\(text, text_pair\)"):
        model(**without(batch, "token_type_ids"))
    types = batch["token_type_ids"].clone()
    types[4] = 0
    with pytest.raises(ValueError, match="row 4 of `token_type_ids` does not hold two sentences"):
        model(**{**batch, "token_type_ids": types})
    with pytest.raises(ValueError, match="`token_type_ids` holds 2: pass 0 or 1 for each token"):
        model(**{**batch, "token_type_ids": batch["token_type_ids"].index_fill(1, torch.tensor([1]), 2)})
    for shape in ((slice(None), slice(4)), (slice(1), slice(None))):
        with pytest.raises(ValueError, match=r"`token_type_ids` has shape .* the inputs have \(10, 9\)"):
            model(**{**batch, "token_type_ids": types[shape]})


def parameters_to_poison(model, variant, head: str) -> dict[str, torch.Tensor]:
    """One parameter of each part of a model."""
    names = [name for name, _ in model.named_parameters()]
    found = {
        "embeddings": next(name for name in names if "embed_tokens" in name),
        "block": next(name for name in names if name.endswith(BLOCK_PARAMETERS)),
        "head": next((name for name in reversed(names) if name.startswith(head)), None),
        "halting head": next((name for name in names if "halting_head" in name), None),
        "memory": "model.memory.weight" if variant.chunked else None,
    }
    return {part: model.get_parameter(name) for part, name in found.items() if name is not None}


def check_nan_is_found(model, variant, batch, head: str, subtests) -> None:
    for part, parameter in parameters_to_poison(model, variant, head).items():
        weights = parameter.detach().clone()
        torch.nn.init.constant_(parameter, float("nan"))
        with (
            subtests.test(part),
            pytest.raises(ValueError, match=r"NaN.*: the weights or the inputs hold NaN or infinite"),
        ):
            model(**batch)
        parameter.data.copy_(weights)
    model(**batch)


def test_nan_weights(model, variant, batch, subtests):
    check_nan_is_found(model, variant, batch, "classifier", subtests)
