"""Geometric attention against the authors' kernels and its naive twin."""

import json
from pathlib import Path

import pytest
import torch

from hf_recurrent.models.ndr.geometric import attend_nearest, geometric_scores, geometric_weights
from reference.geometric_naive import scores_of, weights_of
from support.compare import assert_close
from support.golden import load_case

pytestmark = pytest.mark.architecture("ndr")

CASE = Path(__file__).parent / "parity" / "neural-data-router" / "00_geometric_attention"
FIXTURE = load_case(CASE)[0]
CONFIG = json.loads((CASE / "case.json").read_text())["config"]
NAMES = [f"n{length}_{mask}" for length in CONFIG["N"] for mask in CONFIG["masks"]]


def geometric_attention(query, key, *others, **options):
    return attend_nearest(query @ key.mT, *others, **options)


def random_scores(*shape: int, scale: float = 2.0, hidden: float = 0.2) -> torch.Tensor:
    """(..., Q, K) in float64 with -inf at a share of the keys and where queries meet themselves."""
    scores = scale * torch.randn(shape, dtype=torch.float64)
    num_queries, num_keys = shape[-2:]
    scores.masked_fill_(torch.rand(shape) < hidden, -torch.inf)
    scores.diagonal(num_keys - num_queries, -2, -1).fill_(-torch.inf)
    return scores


def gradient(function, scores: torch.Tensor, cotangent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scores = scores.clone().requires_grad_()
    output = function(scores)
    return output.detach(), torch.autograd.grad(output, scores, cotangent)[0]


@pytest.mark.parametrize("name", NAMES)
def test_fixture(name):
    case = {key.partition(".")[2]: value for key, value in FIXTURE.items() if key.startswith(f"{name}.")}
    weights, grad = gradient(geometric_weights, case["logits"], case["cotangent"])
    # the authors' differences of sums are good to 2e-5 where scores are saturated; the product in float64 is exact
    assert (weights - case["A"]).abs().max() <= (1e-4 if "extreme" in name else 2e-6)
    assert (weights - case["A_float64"]).abs().max() <= 5e-7
    assert (grad - case["grad_logits"]).abs().max() <= 2e-6
    assert (grad[case["logits"].isinf()] == 0).all()
    normalized = geometric_weights(case["logits"], normalize=True)
    assert (normalized - case["A_normalized"]).abs().max() <= (1e-4 if "extreme" in name else 2e-6)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(("num_queries", "num_keys"), [(1, 1), (7, 7), (1, 6), (3, 8)])
def test_equals_the_literal_product(num_queries, num_keys, normalize):
    scores = random_scores(2, 3, num_queries, num_keys)
    scores[0, 0] = -torch.inf
    cotangent = torch.randn_like(scores)
    weights, grad = gradient(lambda x: geometric_weights(x, normalize), scores, cotangent)
    expected, expected_grad = gradient(lambda x: weights_of(x, normalize), scores, cotangent)
    torch.testing.assert_close(weights, expected, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(grad, expected_grad, rtol=1e-10, atol=1e-13)
    assert (weights[0, 0] == 0).all()
    assert (grad[0, 0] == 0).all()


@pytest.mark.parametrize("normalize", [False, True])
def test_gradcheck(normalize):
    visible = random_scores(2, 3, 5).isfinite()
    content, left, right = (torch.randn(shape, dtype=torch.float64) for shape in ((1, 2, 3, 5), (1, 2, 3), (1, 2, 3)))

    def function(content, left, right):
        scores = geometric_scores(content, left, right, visible[:1, None])
        return geometric_weights(scores, normalize)

    given = tuple(x.requires_grad_() for x in (content, left, right))
    assert torch.autograd.gradcheck(function, given)
    assert torch.autograd.gradgradcheck(function, given)


@pytest.mark.parametrize("scale", [40.0, 100.0])
def test_saturated_scores_lose_nothing(scale):
    """Against float64: twenty keys that all match or do not match for certain, and many that hardly match."""
    scores = random_scores(3, 20, 20, scale=scale).float()
    cotangent = torch.randn_like(scores)
    weights, grad = gradient(geometric_weights, scores, cotangent)
    exact, exact_grad = gradient(geometric_weights, scores.double(), cotangent.double())
    assert (weights - exact).abs().max() <= 1e-6
    assert (grad - exact_grad).abs().max() <= 3e-6
    # P = 3e-7 is lost in 1 - P; over a thousand keys it is not
    faint = torch.full((1001, 1001), -15.0).fill_diagonal_(-torch.inf)
    torch.testing.assert_close(geometric_weights(faint), geometric_weights(faint.double()).float(), rtol=2e-6, atol=0)


def test_no_denormal_numbers_where_a_query_has_found_its_keys():
    """Over 90 keys that match half; what is left then is below 1e-34 and counts as nothing."""
    scores = torch.zeros(300, 300).fill_diagonal_(-torch.inf)
    weights, grad = gradient(geometric_weights, scores, torch.randn(300, 300))
    assert ((weights == 0) | (weights > 1e-36)).all()
    assert (weights.count_nonzero(-1) > 100).all()
    exact = geometric_weights(scores.double())
    torch.testing.assert_close(weights.double(), exact, rtol=1e-5, atol=1e-34)
    assert grad.isfinite().all()


def test_dividing_by_a_sum_too_small_to_divide_by():
    """Then by 1e-12, which has no gradient."""
    scores = random_scores(4, 4, scale=0.5, hidden=0.0) - 30
    cotangent = torch.randn_like(scores)
    weights, grad = gradient(lambda x: geometric_weights(x, True), scores, cotangent)
    expected, expected_grad = gradient(lambda x: weights_of(x, True), scores, cotangent)
    assert (weights.sum(-1) < 0.9).all()
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(grad, expected_grad)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_single(dtype):
    scores = random_scores(2, 9, 9).to(dtype)
    weights, grad = gradient(geometric_weights, scores, torch.ones_like(scores))
    exact, exact_grad = gradient(geometric_weights, scores.float(), torch.ones_like(scores).float())
    assert weights.dtype == grad.dtype == dtype
    # computed apart, they may be rounded to neighbours
    precision = torch.finfo(dtype).eps
    assert_close(weights, exact.to(dtype), precision)
    assert_close(grad, exact_grad.to(dtype), precision)


def inputs(num_queries: int, num_keys: int, dtype=torch.float64) -> list[torch.Tensor]:
    """Query, key, value, left and right: 2 rows, 3 heads, head dim 4."""
    heads = (torch.randn(2, 3, count, 4, dtype=dtype) for count in (num_queries, num_keys, num_keys))
    sides = (torch.randn(2, 3, num_queries, dtype=dtype) for _ in range(2))
    return [tensor.requires_grad_() for tensor in (*heads, *sides)]


def masks(num_queries: int, num_keys: int) -> dict:
    by_key = torch.rand(2, num_keys) < 0.7
    by_query = torch.rand(2, 1, num_queries, num_keys) < 0.7
    return {
        "none": (None, lambda b, row, key: True),
        "keys": (by_key, lambda b, row, key: by_key[b, key]),
        "shared keys": (by_key[:1], lambda b, row, key: by_key[0, key]),
        "queries": (by_query, lambda b, row, key: by_query[b, 0, row, key]),
    }


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", ["none", "keys", "shared keys", "queries"])
@pytest.mark.parametrize(("num_queries", "num_keys"), [(6, 6), (2, 5)])
def test_attention_equals_its_naive_twin(num_queries, num_keys, mask, causal, normalize):
    query, key, value, left, right = tensors = inputs(num_queries, num_keys)
    key_mask, seen = masks(num_queries, num_keys)[mask]
    output, weights = geometric_attention(*tensors, key_mask, causal, normalize)
    expected_weights = weights_of(scores_of(query @ key.mT, left, right, seen, causal), normalize)
    expected = expected_weights @ value
    torch.testing.assert_close(weights, expected_weights)
    torch.testing.assert_close(output, expected)
    cotangent = torch.randn_like(output)
    # a side that no key is on may have no gradient or zeros
    ours, naive = (
        torch.autograd.grad(out, tensors, cotangent, allow_unused=True, materialize_grads=True)
        for out in (output, expected)
    )
    for grad, expected_grad in zip(ours, naive, strict=True):
        torch.testing.assert_close(grad, expected_grad)


@pytest.mark.parametrize("causal", [False, True])
def test_last_queries_of_many_are_the_same_alone(causal):
    query, key, value, left, right = inputs(7, 7, torch.float32)
    whole, _ = geometric_attention(query, key, value, left, right, causal=causal)
    for count in (1, 3):
        tail = (query[:, :, -count:], key, value, left[:, :, -count:], right[:, :, -count:])
        torch.testing.assert_close(geometric_attention(*tail, causal=causal)[0], whole[:, :, -count:])


def test_padding_changes_nothing():
    query, key, value, left, right = inputs(6, 6, torch.float32)
    short, _ = geometric_attention(query[:, :, :4], key[:, :, :4], value[:, :, :4], left[:, :, :4], right[:, :, :4])
    padded, _ = geometric_attention(query, key, value, left, right, torch.arange(6)[None] < 4)
    torch.testing.assert_close(padded[:, :, :4], short)


def test_what_is_kept_for_the_backward_pass():
    """Two N x N tensors, of which one is the output, and nothing of that size in the graph of the scores."""
    tensors = inputs(16, 16)
    kept = {}

    def note(tensor):
        if tensor.shape[-2:] == (16, 16) and tensor.numel() > 16 * 16:
            kept[tensor.data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        _, weights = geometric_attention(*tensors)
    assert len(kept) == 2
    assert weights.data_ptr() in kept


def test_autocast_leaves_the_weights_in_single_precision():
    query, key, value, left, right = inputs(6, 6, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        output, weights = geometric_attention(query, key, value, left, right)
        scores = geometric_scores(torch.zeros(2, 3, 6, 6), left, right)
        inside = geometric_weights(scores)
    exact, _ = geometric_attention(query, key, value, left, right)
    assert output.dtype == torch.bfloat16
    assert weights.dtype == inside.dtype == scores.dtype == torch.float32
    assert_close(inside, geometric_weights(scores))
    torch.testing.assert_close(output.float(), exact, rtol=0.05, atol=0.05)


# torch's tracer makes an instance of torch's own base class, which torch warns of
traced = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")


@traced
@pytest.mark.slow
def test_compiled_whole():
    # the gradient too is traced, by a backend that needs no C++ compiler
    compiled = torch.compile(geometric_attention, fullgraph=True, backend="aot_eager")
    tensors = inputs(2, 6, torch.float32)
    mask = torch.rand(2, 6) < 0.8
    output, expected = (f(*tensors, mask, False, True)[0] for f in (compiled, geometric_attention))
    torch.testing.assert_close(output, expected)
    pairs = zip(*(torch.autograd.grad(out.square().sum(), tensors) for out in (output, expected)), strict=True)
    for ours, eager in pairs:
        torch.testing.assert_close(ours, eager)


@traced
@pytest.mark.slow
@pytest.mark.parametrize("strict", [False, True])
def test_exported_for_any_batch(strict):
    class Module(torch.nn.Module):
        def forward(self, query, key, value, left, right):
            return geometric_attention(query, key, value, left, right)[0]

    tensors = inputs(5, 5, torch.float32)
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(Module(), tuple(tensors), dynamic_shapes=[{0: batch}] * 5, strict=strict)
    more = [torch.cat((tensor, tensor[:1])) for tensor in tensors]
    torch.testing.assert_close(program.module()(*more), geometric_attention(*more)[0])


def test_tables_kept_from_inference_serve_training():
    # sizes of no other test
    scores = random_scores(2, 11, 23)
    with torch.inference_mode():
        expected = geometric_weights(scores)
    weights, grad = gradient(geometric_weights, scores, torch.ones_like(scores))
    assert_close(weights, expected)
    assert grad.abs().max() > 0
