"""Expert statistics of real models: what is collected, told, drawn and shown in a card."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from hf_recurrent import SUTConfig, SUTForConditionalGeneration, SUTForSequenceClassification
from hf_recurrent.analysis.experts import (
    ExpertCounts,
    count_experts,
    expert_table,
    load_balance,
    pointwise_mutual_information,
    require_experts,
)
from hf_recurrent.analysis.plots import save_figures
from hf_recurrent.benchmarks import build_tokenizer
from hf_recurrent.cli.experts import show
from hf_recurrent.cli.shared import write_tables
from hf_recurrent.hub.gallery import gallery_problems, refresh
from hf_recurrent.hub.results import EXPERT_FILE
from hf_recurrent.hub.staging import is_publishable
from hf_recurrent.utils import changed_files
from support.card_text import figures
from support.families import BY_NAME, make_batch, make_model

CARDS = Path(__file__).parents[2] / "model_cards"
NAME = "ut-logical-inference"
MODULES = (
    "encoder self-attention",
    "encoder feed-forward",
    "decoder self-attention",
    "decoder cross-attention",
    "decoder feed-forward",
)


def make_sparse(model_class, **changes):
    torch.manual_seed(0)
    sizes = {"vocab_size": 23, "hidden_size": 16, "num_attention_heads": 2, "head_dim": 8, "intermediate_size": 12}
    experts = {"attention_experts": 3, "feed_forward_experts": 5}
    used = {"attention_experts_per_token": 2, "feed_forward_experts_per_token": 2}
    depth = {"num_hidden_layers": 4, "halting": "token", "halting_threshold": 0.8, "initializer_range": 1.0}
    model = model_class(SUTConfig(**{**sizes, **experts, **used, **depth, **changes}))
    for name, module in model.named_modules():
        if name.endswith("halting_head"):
            torch.nn.init.normal_(module.down_proj.weight, std=1.5)
    # left in training mode, which collecting must neither use nor change
    return model.train()


def make_pairs():
    batch = make_batch(BY_NAME["ut"])
    ends = torch.arange(10) % 3
    labels = torch.randint(4, 23, (10, 4)).masked_fill(torch.arange(4) > ends[:, None], -100)
    return {**batch, "input_ids": batch["input_ids"].clamp_max(22), "labels": labels}


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer("logical_inference_translation")


@pytest.fixture(scope="module")
def translated(tokenizer):
    torch.manual_seed(3)
    model, batch = make_sparse(SUTForConditionalGeneration, is_encoder_decoder=True, num_decoder_layers=3), make_pairs()
    counts = count_experts(model, [batch, batch])
    return model, batch, counts, expert_table(counts, tokenizer, 20)


def test_every_router_is_counted(translated):
    model, batch, counts, _ = translated
    assert tuple(counts) == MODULES
    assert model.training
    model.eval()
    with torch.no_grad():
        output = model(**batch, output_experts=True)
    model.train()
    read = model.prepare_decoder_input_ids_from_labels(batch["labels"])
    fields = (
        ("encoder_attention_experts", batch["input_ids"]),
        ("encoder_feed_forward_experts", batch["input_ids"]),
        ("attention_experts", read),
        ("cross_attention_experts", read),
        ("feed_forward_experts", read),
    )
    for name, (field, ids) in zip(MODULES, fields, strict=True):
        experts = output[field]
        for step in range(experts.shape[2]):
            for expert in range(len(counts[name].tokens)):
                # both batches are the same
                assert counts[name].usage[step, expert] == 2 * (experts[:, :, step] == expert).sum()
        for token in set(ids.flatten().tolist()):
            assert counts[name].tokens[:, token].sum() == 2 * (experts[ids == token] >= 0).sum()
        assert counts[name].usage.shape == (*experts.shape[2:3], 5 if "feed" in name else 3)


def test_the_table_tells_shares_and_tokens(translated, tokenizer):
    _, _, counts, table = translated
    assert json.loads(json.dumps(table)) == table
    for name, module in table["modules"].items():
        found = counts[name]
        shares = [expert["share"] for expert in module["experts"]]
        assert sum(shares) == pytest.approx(1)
        assert shares == sorted(shares, reverse=True)
        assert len(module["experts"]) == (found.usage.sum(0) > 0).sum()
        assert 0 <= module["balance"] <= 1
        for expert in module["experts"]:
            assert expert["share"] == found.usage[:, expert["expert"]].sum() / found.usage.sum()
            for item in (*expert["by_count"], *expert["by_information"]):
                token = tokenizer.convert_tokens_to_ids(item["token"])
                assert item["count"] == found.tokens[expert["expert"], token] > 0
            tops = [item["count"] for item in expert["by_count"]]
            assert tops == sorted(found.tokens[expert["expert"]].tolist(), reverse=True)[: len(tops)]


def test_a_single_stack_has_no_prefix():
    batch = {**make_batch(BY_NAME["ut"]), "input_ids": make_pairs()["input_ids"]}
    counts = count_experts(make_sparse(SUTForSequenceClassification), [batch])
    assert tuple(counts) == ("self-attention", "feed-forward")
    assert counts["feed-forward"].usage.sum() > 0


def test_no_expert_is_used_by_empty_texts(tokenizer, tmp_path, capsys):
    counts = {"feed-forward": ExpertCounts(2, np.zeros((4, 5), dtype=int), np.zeros((5, 23), dtype=int))}
    table = expert_table(counts, tokenizer, 3)
    assert table["modules"]["feed-forward"]["experts"] == []
    show("test", table)
    assert "\u2013" in capsys.readouterr().out
    save_figures(tmp_path, table)
    assert len([*tmp_path.glob("assets/*.png")]) == 1


def test_models_without_experts_are_refused():
    with pytest.raises(
        ValueError, match=r"runs/x has no experts .architecture 'ut'.: pass a model of the architecture 'sut'"
    ):
        require_experts(make_model(BY_NAME["ut"]), "runs/x")
    with pytest.raises(ValueError, match="there are no batches"):
        count_experts(make_sparse(SUTForSequenceClassification), [])


@pytest.fixture(scope="module")
def gallery(translated, tmp_path_factory):
    """A committed checkpoint's folder that shows the statistics of another model."""
    root = tmp_path_factory.mktemp("gallery")
    for source in CARDS.glob(f"{NAME}/**/*"):
        path = source.relative_to(CARDS)
        if source.is_file() and source.suffix != ".py" and is_publishable("/".join(path.parts[1:])):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, root / path)
    folder, tables = root / NAME, {"test": translated[-1]}
    with changed_files(folder) as change:
        write_tables(change, EXPERT_FILE, tables, True, "experts")
    refresh(root)
    return root


def test_the_card_tells_them(gallery, translated):
    assert gallery_problems(gallery) == []
    readme = (gallery / NAME / "README.md").read_text()
    for name, module in translated[-1]["modules"].items():
        assert f"| Expert of {name} (balance {module['balance']:.2f}) | Share |" in readme
        first = module["experts"][0]
        assert f"| {first['expert']} of {module['num_experts']} | {100 * first['share']:.1f}% |" in readme
    shown = {figure["path"] for figure in figures(readme)}
    assert "assets/test_expert_usage.png" in shown
    with Image.open(gallery / NAME / "assets" / "test_expert_usage.png") as image:
        assert image.format == "PNG"


def test_balance_is_entropy_over_its_most():
    assert load_balance(np.array([5, 5, 5, 5])) == pytest.approx(1)
    assert load_balance(np.array([0, 7, 0])) == 0
    assert math.copysign(1, load_balance(np.array([0, 7, 0]))) == 1
    expected = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75)) / math.log(3)
    assert load_balance(np.array([1, 3, 0])) == pytest.approx(expected)
    assert load_balance(np.array([4])) is None
    assert load_balance(np.array([0, 0])) is None


def test_mutual_information_is_zero_where_tokens_are_alike_to_experts():
    counts = np.outer([1, 2, 3], [4, 1, 5])
    assert pointwise_mutual_information(counts) == pytest.approx(np.zeros((3, 3)), abs=1e-12)
    counts = np.array([[8, 0], [4, 4]])
    found = pointwise_mutual_information(counts)
    assert found[0, 0] == pytest.approx(math.log2((8 / 16) / (8 / 16 * 12 / 16)))
    assert found[1, 1] == pytest.approx(math.log2((4 / 16) / (8 / 16 * 4 / 16)))
    assert found[1, 0] < 0
    assert found[0, 1] == -math.inf
    assert (pointwise_mutual_information(np.zeros((2, 2), dtype=int)) == -math.inf).all()
