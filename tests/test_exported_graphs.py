"""Exported graphs: of a fixed depth, or with a loop that ends with the last unit, in torch.export and elsewhere."""

import importlib.util

import pytest
import torch

from hf_recurrent import ARCHITECTURES
from hf_recurrent.deploy.export import FORMATS, Exportable, export_model, export_program
from hf_recurrent.deploy.export.program import example_inputs, has_loop
from hf_recurrent.deploy.export.runtimes import difference
from hf_recurrent.models.ops.modes import inference_mode
from hf_recurrent.models.sut.modeling_sut import SUTForConditionalGeneration
from support.compare import assert_close
from support.families import BY_NAME, LANGUAGE_BY_NAME, VOCAB_SIZE, make_batch, make_language_model, make_model
from support.sut_models import make_sut
from support.token_heads import CHOICE, MASKED, NEW_HEADS, SPAN, TOKENS, make_head

TRANSLATION = "translation"
# (model, exit criterion): every halting strategy, layout and kind of evidence
LOOPS = [
    *(("gut", None), ("ut", None), ("ut", "agreement"), ("ndr", "convergence"), ("ndr", "agreement")),
    *(("ndr_act", None), ("gut_no_transition", "entropy"), ("gut_siamese", "confidence"), ("gut_types", "stability")),
    *(("gutlb", None), ("sut", None), ("sut", "convergence"), ("lm_ut", None), ("lm_gut", None)),
    *(("lm_ndr_act", "confidence"), (TRANSLATION, None), (TRANSLATION, "convergence"), (TOKENS, None)),
    *(
        (SPAN, None),
        (CHOICE, "convergence"),
        ("gut_token", None),
        ("gutlb_token", "agreement"),
        ("sut_dense", "entropy"),
    ),
    *(("albert_recurrent", "confidence"), ("lm_gutlb", None), ("lm_sut", None), (MASKED, None), (TOKENS, "entropy")),
]
# a classifier of each architecture, of each kind of attention and cell; language models of all that have them; heads
FIXED = [
    *("xpos_transformer", "ut", "gut", "tlb", "gutlb", "ndr", "ndr_relative", "ndr_absolute_relative", "ndr_act"),
    *("rnn_lstm", "rnn_bilstm", "rnn_dnc", "block_recurrent", "block_recurrent_feedback", "sut", "sut_dense"),
    *("albert_recurrent", "ouro_recurrent", "huginn_recurrent", "gut_siamese", "gut_types"),
    *("lm_xpos_transformer", "lm_ut", "lm_gut", "lm_tlb", "lm_gutlb", "lm_ndr", "lm_rnn_lstm", "lm_rnn_dnc"),
    *("lm_block_recurrent", "lm_sut", "lm_ouro_recurrent", "lm_huginn_recurrent"),
    *(TRANSLATION, TOKENS, MASKED, SPAN, CHOICE),
]
# of the tokens of models whose graphs read one length
LENGTH = 9

# what torch's tracer says of itself where a loop has an autograd function
traced_functions = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(package) is None for package in FORMATS["onnx"].packages),
    reason="needs the extra export: pip install 'hf-recurrent[export]'",
)
needs_executorch = pytest.mark.skipif(
    importlib.util.find_spec("executorch") is None,
    reason="needs the extra executorch: pip install 'hf-recurrent[executorch]'",
)


def model_of(name: str):
    if name == TRANSLATION:
        return make_sut("t5", SUTForConditionalGeneration, vocab_size=VOCAB_SIZE).float()
    if name in NEW_HEADS:
        return make_head("ut", name)
    if name.startswith("lm_"):
        return make_language_model(LANGUAGE_BY_NAME[name.removeprefix("lm_")])
    return make_model(BY_NAME[name])


def exported(name: str, file_format: str, depth: str, folder, **options):
    # what torch remembers of the sizes of other graphs
    torch.compiler.reset()
    model = model_of(name)
    tokens = 64 if model.config.capabilities.reads == "whole" else LENGTH
    path = folder / f"model{FORMATS[file_format].suffix}"
    # which compares logits and steps for batches of other shapes than the one that was traced
    found = export_model(model, path, file_format, depth, tokens=tokens, **options)
    assert path.stat().st_size > 0
    assert found.loops == (depth == "loop")
    assert len(set(found.shapes)) == 3
    return found


def criterion_options(criterion: str | None) -> dict:
    return {} if criterion is None else {"exit_criterion": criterion}


@traced_functions
@pytest.mark.nightly
@pytest.mark.parametrize(("name", "criterion"), LOOPS)
def test_loops_in_torch(name, criterion, tmp_path):
    exported(name, "torch", "loop", tmp_path, **criterion_options(criterion))


@traced_functions
@pytest.mark.nightly
@needs_onnx
@pytest.mark.parametrize(("name", "criterion"), LOOPS)
def test_loops_in_onnx(name, criterion, tmp_path):
    exported(name, "onnx", "loop", tmp_path, **criterion_options(criterion))


@pytest.mark.nightly
@pytest.mark.parametrize("file_format", ["torch", pytest.param("onnx", marks=needs_onnx)])
@pytest.mark.parametrize("name", FIXED)
def test_fixed_depth(name, file_format, tmp_path):
    options = {"max_depth": 2} if model_of(name).config.capabilities.shared_block else {}
    if file_format == "onnx" and name.endswith("rnn_dnc"):
        # the memory's usage takes a cumulative product
        with pytest.raises(
            ValueError, match=r"onnx cannot express this graph of RNN.* No ONNX function found for .*prod"
        ):
            exported(name, file_format, "fixed", tmp_path, **options)
        return
    exported(name, file_format, "fixed", tmp_path, **options)


def test_every_architecture_is_exported_at_a_fixed_depth():
    classifiers = {BY_NAME[name].architecture for name in FIXED if name in BY_NAME}
    assert classifiers == ARCHITECTURES.keys()
    written = {name.removeprefix("lm_") for name in FIXED if name.startswith("lm_")}
    assert {LANGUAGE_BY_NAME[name].architecture for name in written} == {
        name for name, row in ARCHITECTURES.items() if "AutoModelForCausalLM" in row.heads
    }


@pytest.mark.nightly
@needs_executorch
def test_fixed_depth_in_executorch(tmp_path):
    exported("ut", "executorch", "fixed", tmp_path, max_depth=2)


def count_norms(graph: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> int:
    """Layer norms that a graph computes: some in each application of the block, none elsewhere."""
    with torch.no_grad(), torch.profiler.profile() as profile:
        graph(**inputs)
    return sum(event.name == "aten::native_layer_norm" for event in profile.events())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_loop_ends_with_the_last_unit():
    """One graph serves batches of any shape, and takes as many steps as the batch needs."""
    model = model_of("gut")
    program = export_program(model, "loop")
    assert has_loop(program)
    graph = program.module()
    taken, in_a_step = set(), set()
    for rows, tokens, seed in ((1, 5, 0), (1, 9, 2), (1, 4, 3), (3, 12, 1)):
        inputs = example_inputs(model, rows, tokens, tokens, seed)
        with inference_mode(model):
            expected = Exportable(model)(**inputs)
            assert difference(graph(**inputs), expected) < 1e-5
        steps = int(expected["ponder_steps"].max())
        # a transition-aware head looks at the step that it refuses
        computed = min(steps + 1, model.config.num_hidden_layers)
        in_a_step.add(count_norms(graph, inputs) / computed)
        taken.add(steps)
    assert len(taken) > 1
    (number,) = in_a_step
    assert number >= 1


@pytest.mark.parametrize(
    ("name", "depth", "options", "message"),
    [
        ("ut", "fixed", {"tokens": 2}, "tokens is 2: pass 3 or more"),
        ("tlb", "loop", {}, "depth of TLBForSequenceClassification is fixed: its layers are not shared"),
        (
            "gut_no_halt",
            "loop",
            {"max_depth": 1},
            r"it never halts \(halting='none'\); choose an exit_criterion",
        ),
    ],
)
def test_refusals(name, depth, options, message):
    with pytest.raises(ValueError, match=message):
        export_program(model_of(name), depth, **options)


def test_missing_packages_are_named(monkeypatch, tmp_path):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else found(name))
    with pytest.raises(ImportError, match=r"'onnx' needs .*onnxruntime.*: pip install 'hf-recurrent\[export\]'"):
        export_model(model_of("ut"), tmp_path / "model.onnx")


def test_the_format_is_that_of_the_suffix(tmp_path):
    with pytest.raises(ValueError, match=r"whose format is not known: end it in one of \.pt2 "):
        export_model(model_of("ut"), tmp_path / "model.txt")


def test_results_that_differ_are_refused():
    expected = {"logits": torch.tensor([1.0, 2.0]), "ponder_steps": torch.tensor([3, 4])}
    assert difference(expected, expected) == 0
    with pytest.raises(
        ValueError, match=r"`logits` of the exported graph differs from the model's by 0\.1 of its size"
    ):
        difference({**expected, "logits": torch.tensor([1.0, 2.2])}, expected)
    with pytest.raises(ValueError, match="1 of 2 `ponder_steps` of the exported graph"):
        difference({**expected, "ponder_steps": torch.tensor([3, 5])}, expected)
    # padding has the lowest number, beside which every error is small
    padded = {"start_logits": torch.tensor([1.0, torch.finfo(torch.float32).min])}
    assert difference(padded, padded) == 0
    for wrong in (torch.tensor([1.2, padded["start_logits"][1]]), torch.tensor([1.0, 0.0])):
        with pytest.raises(ValueError, match="`start_logits` of the exported graph differs"):
            difference({"start_logits": wrong}, padded)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["ut", "gut", "tlb", "block_recurrent", "sut", "ouro_recurrent"])
def test_traces_depend_on_no_values(name):
    """A trace of one batch computes another of the same shape, whose sequences have other lengths."""
    variant = BY_NAME[name]
    model = make_model(variant).eval()
    model.config.return_dict = False
    traced_with, others = (make_batch(variant, rows=4, seed=seed) for seed in (1, 2))

    with torch.no_grad():
        inputs = [(batch["input_ids"], batch["attention_mask"]) for batch in (traced_with, others)]
        trace = torch.jit.trace(model, inputs[0], check_trace=False)
        for each in inputs:
            assert_close(trace(*each)[0], model(*each)[0], tolerance=1e-5)
