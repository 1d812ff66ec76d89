"""ALBERT's recorded cases, reproduced; transformers' own ALBERT, computed exactly; and checkpoints, there and back."""

from pathlib import Path

import pytest
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import AlbertConfig

from hf_recurrent import ARCHITECTURES, AlbertRecurrentConfig, from_pretrained_recurrent
from hf_recurrent.convert import save_original
from hf_recurrent.convert.albert import ALBERT
from parity.reference import load_reference
from support.compare import assert_close
from support.golden import TOLERANCE, assert_reproduced, load_case

pytestmark = pytest.mark.architecture("albert_recurrent")

CASES = Path(__file__).parent / "parity" / "pretrained" / "albert"
NAMES = sorted(path.parent.name for path in CASES.glob("*/case.json"))
INPUTS = {"input_ids", "attention_mask", "token_type_ids", "position_ids", "labels", "mlm_labels"}
# results of whole sequences, and of decisions on them
OF_ROWS = ("pooler_output", "logits", "loss", "mlm_loss", "pabee", "patience")
TINY = {
    "vocab_size": 40,
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 32,
}
HEADS = {
    "AlbertModel": ("AutoModel", "last_hidden_state", "pooler_output"),
    "AlbertForSequenceClassification": ("AutoModelForSequenceClassification", "logits"),
    "AlbertForTokenClassification": ("AutoModelForTokenClassification", "logits"),
    "AlbertForMaskedLM": ("AutoModelForMaskedLM", "logits"),
    "AlbertForQuestionAnswering": ("AutoModelForQuestionAnswering", "start_logits", "end_logits"),
    "AlbertForMultipleChoice": ("AutoModelForMultipleChoice", "logits"),
}


def at_tokens(name: str, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Values of tokens, (B, S, ...) or (L, B, S, ...); what is recorded of padding means nothing."""
    if name.startswith(OF_ROWS):
        return values
    return values[mask] if values.shape[:2] == mask.shape else values[:, mask]


@pytest.mark.parametrize("name", NAMES)
def test_case_is_reproduced(name):
    io, gradients = load_case(CASES / name)
    found = load_reference(CASES / name).run(io, gradients=True)
    mask = io["attention_mask"].bool()
    assert_reproduced(found, io, io.keys() - INPUTS, gradients, lambda key, values: at_tokens(key, values, mask))


@pytest.mark.parametrize("patience", [1, 2, 3])
@pytest.mark.parametrize("name", ["many_labels_deep", "one_group_right_pad", "two_groups_two_inner", "uneven_groups"])
def test_stability_is_the_rule_of_patience(name, patience):
    """Each sequence stops where it would alone, with the answer of the classifier of its last step."""
    io, _ = load_case(CASES / name)
    inputs = {key: io[key] for key in ("input_ids", "attention_mask", "token_type_ids")}
    model = load_reference(CASES / name).by_step
    with torch.no_grad():
        found = model(**inputs, exit_criterion="stability", exit_patience=patience)
    assert torch.equal(found.ponder_steps, io[f"patience_layers.{patience}"])
    assert_close(found.logits, io[f"patience_logits.{patience}"], tolerance=TOLERANCE)


def test_every_step_is_trained_by_patience_weights():
    io, _ = load_case(CASES / "one_group_right_pad")
    model = load_reference(CASES / "one_group_right_pad").by_step.train()
    model.config.depth_objective = "every_step"
    names = ("input_ids", "attention_mask", "token_type_ids", "labels")
    assert_close(model(**{name: io[name] for name in names}).loss, io["pabee_training_loss"], tolerance=TOLERANCE)


def batch_for(head: str, length: int = 9) -> dict[str, torch.Tensor]:
    """Sequences padded on the right; a question with three choices for multiple choice."""
    lengths = torch.tensor([length, max(1, length - 2), max(1, length // 2)])[:, None]
    mask = (torch.arange(length) < lengths).long()
    batch = {
        "input_ids": torch.randint(4, TINY["vocab_size"], (3, length)),
        "attention_mask": mask,
        "token_type_ids": (torch.arange(length) > length // 2).long() * mask,
    }
    return {name: value[None] for name, value in batch.items()} if head == "AlbertForMultipleChoice" else batch


def their_model(head: str, **fields):
    number = 2 if head == "AlbertForQuestionAnswering" else 3
    config = AlbertConfig(**{**TINY, "initializer_range": 0.2, "num_labels": number, **fields})
    return getattr(transformers, head)(config).eval()


def assert_same_outputs(head: str, ours, theirs) -> None:
    batch = batch_for(head)
    mask = batch["attention_mask"].bool()
    with torch.no_grad():
        found, expected = ours(**batch), theirs(**batch)
    for name in HEADS[head][1:]:
        values = found[name], expected[name]
        by_token = head not in ("AlbertForMultipleChoice", "AlbertForSequenceClassification") and "pooler" not in name
        assert_close(*(each[mask] if by_token else each for each in values), tolerance=TOLERANCE)


@pytest.mark.parametrize("head", HEADS)
def test_a_checkpoint_is_loaded_and_saved_with_the_same_weights(head, tmp_path):
    theirs = their_model(head)
    theirs.save_pretrained(tmp_path / "theirs")
    ours, report = from_pretrained_recurrent(tmp_path / "theirs", output_loading_info=True)
    assert not any(report.values()), report
    assert type(ours) is ARCHITECTURES["albert_recurrent"].model_class(HEADS[head][0])
    assert_same_outputs(head, ours, theirs)
    # under our names, which any Auto class finds
    ours.save_pretrained(tmp_path / "ours")
    again, report = getattr(transformers, HEADS[head][0]).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    # and back
    save_original(again, tmp_path / "back")
    assert len({path.stat().st_mode for path in (tmp_path / "back").iterdir()}) == 1
    first, last = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "back"))
    assert first.keys() == last.keys()
    assert all(torch.equal(first[name], last[name]) for name in first)
    loaded, report = getattr(transformers, head).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(report.values()), report
    assert loaded.config.to_diff_dict().keys() - {"transformers_version"} <= theirs.config.to_diff_dict().keys()
    assert_same_outputs(head, again, loaded)


@pytest.mark.slow
@given(
    st.fixed_dictionaries(
        {
            "num_hidden_layers": st.integers(1, 6),
            "num_hidden_groups": st.integers(1, 3),
            "inner_group_num": st.integers(1, 2),
            "hidden_act": st.sampled_from(["gelu_new", "gelu", "relu"]),
            "embedding_size": st.sampled_from([8, 32, 40]),
            "num_attention_heads": st.sampled_from([1, 4]),
            "type_vocab_size": st.integers(2, 3),
            "layer_norm_eps": st.sampled_from([1e-12, 1e-2]),
        }
    ),
    st.sampled_from([head for head in HEADS if head != "AlbertForMultipleChoice"]),
    st.sampled_from(["eager", "sdpa"]),
)
def test_any_config_computes_the_same(fields, head, implementation):
    fields["num_hidden_groups"] = min(fields["num_hidden_groups"], fields["num_hidden_layers"])
    torch.manual_seed(0)
    theirs = their_model(head, **fields)
    config = AlbertRecurrentConfig(**ALBERT.our_fields(theirs.config.to_dict()), num_labels=theirs.config.num_labels)
    model_class = ARCHITECTURES["albert_recurrent"].model_class(HEADS[head][0])
    ours = model_class._from_config(config, attn_implementation=implementation).eval()
    state = theirs.state_dict()
    ours.load_state_dict({our: state[their] for their, our in ALBERT.their_names(ours).items()}, strict=False)
    ours.tie_weights()
    assert_same_outputs(head, ours, theirs)


def test_heads_and_fields_of_a_call(tmp_path):
    their_model("AlbertForMaskedLM").save_pretrained(tmp_path)
    model, report = from_pretrained_recurrent(
        tmp_path,
        transformers.AutoModelForSequenceClassification,
        num_labels=5,
        exit_criterion="stability",
        exit_patience=1,
        dtype=torch.bfloat16,
        output_loading_info=True,
    )
    # what pools, and the classifier, are new, as of transformers' own class
    assert {".".join(name.split(".")[:2]) for name in report["missing_keys"]} == {
        "classifier.weight",
        "classifier.bias",
        "model.pooler",
    }
    assert (model.dtype, model.config.num_labels, model.config.exit_criterion) == (torch.bfloat16, 5, "stability")
    with torch.no_grad():
        assert (model(**batch_for("AlbertForMaskedLM")).ponder_steps >= 2).all()


def test_boundary_tokens_have_no_part_in_positions():
    tokens = {"vocab_size": 300, "bos_token_id": 298, "eos_token_id": 299, "boundary_initializer_range": 9.0}
    model = ARCHITECTURES["albert_recurrent"].model_class("AutoModel")(AlbertRecurrentConfig(**{**TINY, **tokens}))
    assert model.embed_positions.weight.abs().max() < 0.2
    assert model.embed_tokens.weight[298:].abs().max() > 1.0


def test_position_ids_are_those_of_transformers():
    theirs = their_model("AlbertModel")
    config = AlbertRecurrentConfig(**ALBERT.our_fields(theirs.config.to_dict()))
    ours = ARCHITECTURES["albert_recurrent"].model_class("AutoModel")(config).eval()
    state = theirs.state_dict()
    ours.load_state_dict({our: state[their] for their, our in ALBERT.their_names(ours).items()})
    batch = batch_for("AlbertModel") | {"position_ids": torch.randperm(31)[:9][None]}
    mask = batch["attention_mask"].bool()
    with torch.no_grad():
        found, expected = (model(**batch).last_hidden_state for model in (ours, theirs))
    assert_close(found[mask], expected[mask], tolerance=TOLERANCE)
    for wrong, message in (
        (torch.full((1, 9), 32), r"`position_ids` holds ids from 32 to 32 but `config.max_position_embeddings` is 32"),
        (torch.zeros(2, 9, dtype=torch.long), r"`position_ids` has shape \(2, 9\): the inputs have \(3, 9\)"),
        ([0], "`position_ids` is .*: pass a tensor"),
    ):
        with pytest.raises(ValueError, match=message):
            ours(**batch | {"position_ids": wrong})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_of_a_new_masked_language_model_are_finite(dtype):
    """Its head maps the zero state of padding to a state without variance."""
    config = AlbertRecurrentConfig(**TINY)
    model = transformers.AutoModelForMaskedLM.from_config(config).to(dtype)
    ids, mask = torch.full((2, 4), 7), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    model(ids, attention_mask=mask, labels=ids).loss.backward()
    assert all(each.grad.isfinite().all() for each in model.parameters() if each.grad is not None)


def test_refused(tmp_path):
    config = AlbertRecurrentConfig(**TINY, num_hidden_groups=2)
    model = ARCHITECTURES["albert_recurrent"].model_class("AutoModel")(config).eval()
    ids = torch.full((1, 33), 5)
    with pytest.raises(ValueError, match=r"has 33 tokens, but this model has embeddings of 32 positions .*: cut it"):
        model(ids)
    with pytest.raises(
        ValueError, match="max_depth is 6, but the depth steps of this model are divided among 2 groups"
    ):
        model(ids[:, :4], max_depth=6)
    separate = ARCHITECTURES["albert_recurrent"].model_class("AutoModelForSequenceClassification")(
        AlbertRecurrentConfig(**TINY, step_classifiers="separate")
    )
    with pytest.raises(ValueError, match="max_depth is 6, but each depth step of this model has a classifier"):
        separate.eval()(ids[:, :4], max_depth=6)
    with pytest.raises(StrictDataclassError, match=r"depth_range` is .* draws more steps than the 5 that have class"):
        AlbertRecurrentConfig(**TINY, step_classifiers="separate", depth_sampling="uniform", depth_range=[1, 6])
    transformers.BertConfig().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="has model_type 'bert': expected one of albert"):
        from_pretrained_recurrent(tmp_path)
    AlbertConfig(**TINY, hidden_act="mish").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="hidden_act"):
        from_pretrained_recurrent(tmp_path)
    AlbertConfig(**TINY).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="auto_class is 'AutoModelForCausalLM': expected one of AutoModel, "):
        from_pretrained_recurrent(tmp_path, "AutoModelForCausalLM")
    gut = ARCHITECTURES["gut"]
    with pytest.raises(ValueError, match="architecture 'gut', which no other package has"):
        save_original(gut.model_class("AutoModel")(gut.config_class(hidden_size=32)), tmp_path)


@pytest.mark.parametrize("head", ["SequenceClassification", "TokenClassification", "MultipleChoice"])
def test_features_of_classifiers_are_dropped_out_in_training(head):
    model = getattr(transformers, f"AutoModelFor{head}").from_config(
        AlbertRecurrentConfig(**TINY, classifier_dropout=0.5)
    )
    shape = (2, 3, 4) if head == "MultipleChoice" else (2, 4)
    ids = torch.randint(4, TINY["vocab_size"], shape)
    first, second = (model.train()(ids).logits for _ in range(2))
    assert not torch.allclose(first, second)
    first, second = (model.eval()(ids).logits for _ in range(2))
    assert_close(first, second)
