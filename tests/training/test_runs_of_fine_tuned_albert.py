"""Runs that begin with a checkpoint of transformers: recipes for GLUE, and backbones that stay as they are."""

import pytest
import torch
from tiny_run import GLUE_RECIPES

from hf_recurrent import (
    AlbertRecurrentConfig,
    AlbertRecurrentForSequenceClassification,
    UTConfig,
    UTForCausalLM,
    from_pretrained_recurrent,
)
from hf_recurrent.hub.checkpoint import save_checkpoint
from hf_recurrent.text_data.source import TextSource
from hf_recurrent.training.arguments import ARGUMENT_TYPES
from hf_recurrent.training.metrics import scores_of
from hf_recurrent.training.model import check_model, load_tokenizer, make_config, make_model
from hf_recurrent.training.objectives import CLASSIFICATION, LANGUAGE_MODELLING
from hf_recurrent.training.recipes import parse
from hf_recurrent.training.selection import check_selection
from hf_recurrent.training.trainer_run import limit_length
from support.albert import glue_splits, save_albert


def read(*argv):
    """The arguments of a command line."""
    return parse([*map(str, argv), "--output_dir", "unused", "--use_cpu", "true"], ARGUMENT_TYPES)[0]


@pytest.fixture
def glue(monkeypatch):
    """Lets tasks of GLUE have a few examples."""
    monkeypatch.setattr(TextSource, "load_data_set", lambda self: glue_splits(self.task_name))


def started(model, data):
    """The model and tokenizer that a run begins with."""
    tokenizer = load_tokenizer(model, data)
    return make_model(model, make_config(model, data, tokenizer), CLASSIFICATION), tokenizer


@pytest.mark.parametrize("path", GLUE_RECIPES, ids=lambda path: path.stem)
def test_a_recipe_begins_with_the_weights_of_albert(path, glue, tmp_path):
    theirs = save_albert(tmp_path / "albert")
    assert path.read_text().startswith("#")
    names = read(path)[0]
    assert (names.model_name_or_path, names.model_type) == ("albert/albert-base-v2", None)
    model_args, data, report, args = read(path, "--model_name_or_path", tmp_path / "albert")
    assert path.stem == f"{data.task_name}_albert_pabee"
    assert report.paper_table.startswith("ALBERT base with PABEE on ")
    check_model(model_args, data)
    model, tokenizer = started(model_args, data)
    check_selection(
        args, [name for name in data.own.splits if name.startswith("validation")], scores_of(data.own.labels)
    )
    assert type(model) is AlbertRecurrentForSequenceClassification
    assert len(model.classifiers) == theirs.config.num_hidden_layers
    assert model.config.depth_objective == "every_step"
    assert tuple(model.config.id2label.values()) == data.info.label_names
    assert torch.equal(model.model.embed_tokens.weight, theirs.albert.embeddings.word_embeddings.weight)
    assert torch.equal(model.model.pooler.weight, theirs.albert.pooler.weight)
    assert all(parameter.requires_grad for parameter in model.parameters())
    # transformers' tokenizer tells the texts of a pair apart on request alone
    assert max(tokenizer("good film", "bad film")["token_type_ids"]) == 1


def test_a_frozen_backbone_keeps_the_weights_that_it_has(glue, tmp_path):
    save_albert(tmp_path / "albert", "AlbertForMaskedLM")
    flags = ("--model_name_or_path", tmp_path / "albert", "--task_name", "sst2", "--freeze_base_model", "true")
    model, _ = started(*read(*flags)[:2])
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    # a masked language model has no pooler
    new = {f"{name}.{kind}" for name in ("classifier", "model.pooler") for kind in ("weight", "bias")}
    assert trained == new


def test_a_converted_checkpoint_keeps_the_size_of_its_vocabulary(glue, tmp_path):
    save_albert(tmp_path / "albert")
    ours = from_pretrained_recurrent(tmp_path / "albert")
    flags = ("--model_name_or_path", tmp_path / "ours", "--task_name", "sst2")
    model_args, data, *_ = read("--model_name_or_path", tmp_path / "albert", "--task_name", "sst2")
    save_checkpoint(ours, tmp_path / "ours", load_tokenizer(model_args, data))
    model, _ = started(*read(*flags)[:2])
    assert torch.equal(model.model.embed_tokens.weight, ours.model.embed_tokens.weight)


def test_what_cannot_begin_a_run(glue, tmp_path):
    save_albert(tmp_path / "albert", vocab_size=9)
    flags = ("--model_name_or_path", tmp_path / "albert", "--task_name", "sst2")
    with pytest.raises(ValueError, match=r"its tokenizer has 16 tokens and its model embeddings of 9 \(vocab_size\)"):
        started(*read(*flags)[:2])
    with pytest.raises(ValueError, match="AlbertRecurrentConfig has no field 'step_clasifiers'; did you mean step_cl"):
        started(*read(*flags, "--config", "{step_clasifiers: separate}")[:2])
    with pytest.raises(ValueError, match="freeze_base_model is True: it is for a checkpoint, model_name_or_path"):
        read("--model_type", "gut", "--freeze_base_model", "true")


def test_a_head_without_weights_of_its_own_cannot_be_trained_alone(tmp_path):
    model = UTForCausalLM(UTConfig.preset("tiny", is_causal=True, tie_word_embeddings=True))
    save_checkpoint(model, tmp_path / "ut")
    arguments = read("--model_name_or_path", tmp_path / "ut", "--freeze_base_model", "true")[0]
    with pytest.raises(ValueError, match="freeze_base_model is true: UTForCausalLM has no weights of its own"):
        make_model(arguments, model.config, LANGUAGE_MODELLING)


@pytest.mark.parametrize(("given", "expected"), [(None, 16), (8, 8), (32, 16)])
def test_texts_are_cut_to_the_positions_that_there_are(given, expected, tmp_path):
    (tmp_path / "a.csv").write_text("text,label\na,b\n")
    flags = () if given is None else ("--max_seq_length", given)
    _, data, *_ = read("--model_type", "ut", "--train_file", tmp_path / "a.csv", *flags)
    limit_length(UTConfig(), data)
    assert data.max_seq_length == given
    limit_length(AlbertRecurrentConfig(max_position_embeddings=16), data)
    assert data.max_seq_length == expected
