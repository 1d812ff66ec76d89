"""Token embeddings of another checkpoint."""

import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTModel,
)

import hf_recurrent  # noqa: F401 - registers the families
from hf_recurrent.data.tokenizers import load_tokenizer, train_tokenizer
from hf_recurrent.training.model import take_embeddings
from support.families import BY_NAME, make_config
from support.other_tokenizers import OTHERS, SENTENCES

WIDTH = 32
BERT = {"hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
SOURCES = {
    "bert": lambda size: BertForMaskedLM(BertConfig(vocab_size=size, **BERT)),
    "gpt2": lambda size: GPT2LMHeadModel(GPT2Config(vocab_size=size, n_embd=WIDTH, n_layer=1, n_head=2)),
    "t5": lambda size: T5ForConditionalGeneration(
        T5Config(vocab_size=size, d_model=WIDTH, d_kv=8, d_ff=8, num_layers=1, num_heads=2)
    ),
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A folder with a checkpoint of each kind, and the embeddings of each."""
    place = tmp_path_factory.mktemp("sources")
    tables = {}
    for name, make in SOURCES.items():
        tokenizer = OTHERS[name]()
        tokenizer.save_pretrained(place / name)
        # more rows than tokens, as they often have
        model = make(len(tokenizer) + 5)
        model.save_pretrained(place / name)
        tables[name] = model.get_input_embeddings().weight.detach()
    return place, tables


def new_model(tokenizer, architecture="gut", auto_class=AutoModelForSequenceClassification, **fields):
    fields = {"vocab_size": len(tokenizer) + 3, "initializer_range": 0.5, "tie_word_embeddings": True} | fields
    return auto_class.from_config(make_config(BY_NAME[architecture], **fields))


def ids_of(tokenizer, *tokens):
    return [tokenizer.convert_tokens_to_ids(token) for token in tokens]


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.filterwarnings("ignore:the tokenizer of .* has no padding token")
def test_the_same_tokenizer_gives_all_rows(sources, name):
    place, tables = sources
    tokenizer = load_tokenizer(str(place / name), frame="language")
    model = new_model(tokenizer, auto_class=AutoModelForCausalLM)
    before = model.get_input_embeddings().weight.detach().clone()
    assert take_embeddings(model, tokenizer, str(place / name)) == len(tokenizer)
    after = model.get_input_embeddings().weight
    assert torch.equal(after[: len(tokenizer)], tables[name][: len(tokenizer)])
    assert torch.equal(after[len(tokenizer) :], before[len(tokenizer) :])
    assert model.lm_head.weight is after


def test_tokens_that_both_know(sources):
    place, tables = sources
    tokenizer = train_tokenizer("words", SENTENCES, frame="classification")
    model = new_model(tokenizer)
    before = model.get_input_embeddings().weight.detach().clone()
    taken = take_embeddings(model, tokenizer, str(place / "bert"))
    known = ["the", "cat", "dog", ".", "[PAD]", "[UNK]"]
    assert taken == len(known) + 2
    theirs = ids_of(OTHERS["bert"](), *known, "[CLS]", "[SEP]")
    ours = ids_of(tokenizer, *known, "[BOS]", "[EOS]")
    after = model.get_input_embeddings().weight
    assert torch.equal(after[ours], tables["bert"][theirs])
    others = [row for row in range(len(after)) if row not in ours]
    assert torch.equal(after[others], before[others])


def test_the_end_of_a_text_comes_before_padding(sources):
    place, tables = sources
    with pytest.warns(UserWarning, match="padding with"):
        tokenizer = load_tokenizer(str(place / "gpt2"), frame="language")
    model = new_model(tokenizer)
    take_embeddings(model, tokenizer, str(place / "t5"))
    (end,) = ids_of(OTHERS["t5"](), "</s>")
    assert torch.equal(model.get_input_embeddings().weight[tokenizer.eos_token_id], tables["t5"][end])


@pytest.mark.parametrize("tied", [False, True])
def test_both_stacks_take_them(sources, tied):
    place, tables = sources
    tokenizer = load_tokenizer(str(place / "t5"), frame="seq2seq")
    fields = {"is_encoder_decoder": True, "tie_word_embeddings": tied}
    model = new_model(tokenizer, "sut", AutoModelForSeq2SeqLM, **fields)
    take_embeddings(model, tokenizer, str(place / "t5"))
    for stack in (model.model.encoder, model.model.decoder):
        assert torch.equal(stack.embed_tokens.weight[: len(tokenizer)], tables["t5"][: len(tokenizer)])


def test_base_models_and_several_files(sources, tmp_path):
    place, _ = sources
    tokenizer = load_tokenizer(str(place / "bert"), frame="classification")
    source = BertModel(BertConfig(vocab_size=12, **BERT))
    source.save_pretrained(tmp_path, max_shard_size="4KB")
    tokenizer.save_pretrained(tmp_path)
    model = new_model(tokenizer)
    assert take_embeddings(model, tokenizer, str(tmp_path)) == 12
    assert torch.equal(model.get_input_embeddings().weight[:12], source.get_input_embeddings().weight)


@pytest.fixture
def broken(sources, tmp_path):
    """Folders that nothing can be taken from."""
    key = "bert.embeddings.word_embeddings.weight"
    whole = load_file(sources[0] / "bert" / "model.safetensors")
    rest = {name: value for name, value in whole.items() if name != key}
    for name, weights in (("nan", {**whole, key: whole[key] * float("nan")}), ("without", rest)):
        shutil.copytree(sources[0] / "bert", tmp_path / name)
        save_file(weights, tmp_path / name / "model.safetensors")
    ViTModel(ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1)).save_pretrained(tmp_path / "vit")
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("source", "text", "model", "message"),
    [
        ("bert", "zebra", {}, "has none of the model's tokens: take the same one, --tokenizer"),
        (
            *("bert", "zebra", {"hidden_size": 16}),
            "its embeddings are 32 wide and the model's 16: make the model as wide, --config '{hidden_size: 32}'",
        ),
        (
            *("bert", "zebra", {"architecture": "rnn_lstm", "embedding_size": 20, "tie_word_embeddings": False}),
            "--config '{embedding_size: 32}'",
        ),
        ("./none", "zebra", {}, "embeddings_from='./none': there is no such folder"),
        ("empty", "zebra", {}, "does not load, or has"),
        ("vit", "zebra", {}, "does not load, or has no embeddings of tokens"),
        ("nan", "the cat", {}, "NaN or infinite values among them"),
        ("without", "zebra", {}, "it has no embeddings of tokens"),
    ],
)
def test_what_cannot_be_taken(sources, broken, source, text, model, message):
    tokenizer = train_tokenizer("words", [text], frame="classification")
    made = new_model(tokenizer, **model)
    before = made.get_input_embeddings().weight.detach().clone()
    place = sources[0] / source if source == "bert" else source if source == "./none" else broken / source
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        take_embeddings(made, tokenizer, str(place))
    assert "\n" not in str(caught.value)
    assert torch.equal(made.get_input_embeddings().weight, before)
