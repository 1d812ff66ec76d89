"""The fused kernels of geometric attention: in Triton's interpreter, through Triton's compiler, and on a GPU."""

import importlib.util
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

import pytest
import torch

from hf_recurrent.models.ndr.geometric import attend_nearest

pytestmark = pytest.mark.architecture("ndr")

TRITON = importlib.util.find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not TRITON, reason="Triton is not installed")
# shared memory of a block, of an H100
MOST_SHARED_BYTES = 227 * 1024


def kernel_module():
    """Imported when asked for: the process that interprets reads this file before it says so."""
    from hf_recurrent.models.ndr import kernels as geometric_kernel

    return geometric_kernel


def interpret() -> None:
    """In a process of its own, before it imports Triton: compiled and interpreted kernels do not go together."""
    os.environ["TRITON_INTERPRET"] = "1"
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def interpreter():
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=interpret) as pool:
        yield pool


def fused(tensors: list, mask, cotangent, options: dict) -> list:
    """Output and gradients of the kernel, all numpy arrays as the inputs are."""
    inputs = [torch.from_numpy(array).requires_grad_() for array in tensors]
    mask = None if mask is None else torch.from_numpy(mask)
    output = kernel_module().geometric_attention_triton(*inputs, mask, **options)
    grads = torch.autograd.grad(output, inputs, torch.from_numpy(cotangent))
    return [tensor.detach().numpy() for tensor in (output, *grads)]


def make(num_queries: int, num_keys: int, head_dim: int, mask: str = "none", dtype=torch.float32, rows: int = 1):
    """Query, key, value, left and right of rows with 2 heads each, the mask, and a gradient of the output."""
    heads = [torch.randn(rows, 2, count, head_dim) for count in (num_queries, num_keys, num_keys)]
    heads[0] /= head_dim**0.5
    sides = [torch.randn(rows, 2, num_queries) for _ in range(2)]
    masks = {
        "none": None,
        "keys": torch.arange(num_keys) < num_keys * torch.arange(1, rows + 1)[:, None] / (rows + 1),
        "shared holes": torch.rand(1, num_keys) < 0.7,
        "queries": torch.rand(rows, 1, num_queries, num_keys) < 0.7,
        "nothing": torch.zeros(rows, num_keys, dtype=torch.bool),
    }
    tensors = [tensor.to(dtype) for tensor in (*heads, *sides)]
    return tensors, masks[mask], torch.randn_like(tensors[0])


def exact(tensors, mask, cotangent, options: dict) -> list[torch.Tensor]:
    inputs = [tensor.detach().double().requires_grad_() for tensor in tensors]
    query, key, *others = inputs
    output, _ = attend_nearest(query @ key.mT, *others, mask, **options)
    return [output, *torch.autograd.grad(output, inputs, cotangent.double(), materialize_grads=True, allow_unused=True)]


def assert_near(ours, expected, tolerance: float) -> None:
    """Every gradient to a part of its largest entry."""
    for got, wanted in zip(ours, expected, strict=True):
        difference = (torch.as_tensor(got).to(wanted) - wanted).abs().max()
        assert difference <= tolerance * max(wanted.abs().max(), 1.0)


def check(interpreter, case, tolerance: float = 2e-5, **options) -> list:
    tensors, mask, cotangent = case
    arrays = [tensor.numpy() for tensor in tensors]
    mask_array = None if mask is None else mask.numpy()
    ours = interpreter.submit(fused, arrays, mask_array, cotangent.numpy(), options).result()
    assert_near(ours, exact(*case, options), tolerance)
    return ours


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize(
    ("mask", "normalize", "causal"), [("none", False, False), ("queries", True, False), ("keys", False, True)]
)
def test_several_tiles(interpreter, mask, normalize, causal):
    check(interpreter, make(71, 71, 16, mask), causal=causal, normalize=normalize)


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize(
    ("num_queries", "num_keys", "head_dim", "mask", "rows"),
    [(1, 1, 8, "none", 3), (1, 70, 16, "keys", 2), (33, 50, 20, "shared holes", 2), (9, 9, 160, "none", 1)],
)
def test_odd_sizes(interpreter, num_queries, num_keys, head_dim, mask, rows):
    check(interpreter, make(num_queries, num_keys, head_dim, mask, rows=rows))


@pytest.mark.slow
@needs_triton
def test_rows_that_see_nothing(interpreter):
    output, *grads = check(interpreter, make(5, 5, 8, "nothing"), normalize=True)
    assert (output == 0).all()
    assert all((grad == 0).all() for grad in grads)


@pytest.mark.slow
@needs_triton
def test_queries_that_see_nothing_leave_half_precision_gradients_of_others_as_they_are(interpreter):
    # the first query of a causal row is one
    case = make(20, 20, 16, "keys", torch.float16, rows=2)
    check(interpreter, case, tolerance=2e-2, causal=True, normalize=True)


@pytest.mark.slow
@needs_triton
def test_saturated_scores(interpreter):
    tensors, mask, cotangent = make(40, 40, 8)
    tensors[0] *= 40
    check(interpreter, (tensors, mask, cotangent), tolerance=1e-4)


@pytest.mark.slow
@needs_triton
def test_the_early_stop(interpreter):
    """Where every key matches half, nothing is left in float32 after 150 keys, and the last are never visited."""
    tensors, _, cotangent = make(8, 400, 8)
    for of_queries in (0, 3, 4):
        tensors[of_queries].zero_()
    expected = exact(tensors, None, cotangent, {})
    # a value that is visited would make everything NaN, its weight being 0 or not
    tensors[2][:, :, :64] = torch.nan
    arrays = [tensor.numpy() for tensor in tensors]
    assert_near(interpreter.submit(fused, arrays, None, cotangent.numpy(), {}).result(), expected, 2e-5)


@pytest.mark.slow
@needs_triton
def test_a_tiny_row_sum_does_not_divide(interpreter):
    tensors, mask, cotangent = make(6, 6, 8)
    for side in tensors[3:]:
        side -= 32
    check(interpreter, (tensors, mask, cotangent), normalize=True)


@pytest.mark.slow
@needs_triton
def test_half_precision(interpreter):
    case = make(40, 40, 16, "keys", torch.float16)
    output, *_ = check(interpreter, case, tolerance=4e-3)
    assert output.dtype == "float16"


def autocast_logits() -> list:
    """Logits of one model under autocast, written out and by the kernel."""
    # imported here: see `kernel_module`
    from support.families import BY_NAME, make_batch, make_model

    variant = BY_NAME["ndr"]
    batch, found = make_batch(variant), []
    for implementation in ("eager", "triton"):
        model = make_model(variant)
        # transformers' way would ask for a GPU
        model.config._attn_implementation = implementation
        with torch.no_grad(), torch.autocast("cpu", torch.float16):
            found.append(model(**batch).logits.float().numpy())
    return found


@pytest.mark.slow
@needs_triton
def test_autocast_gives_the_kernel_one_dtype(interpreter):
    eager, kernel = interpreter.submit(autocast_logits).result()
    assert_near([kernel], [torch.from_numpy(eager)], 2e-2)


def test_a_second_derivative_is_refused():
    """Before any kernel is launched; torch would leave its part out without a word."""
    with pytest.raises(RuntimeError, match="set attn_implementation='eager'"):
        kernel_module().FusedGeometricAttention.backward(None, torch.ones(1))


def test_the_hub_does_not_ask_for_triton():
    from transformers.dynamic_module_utils import get_imports

    assert "triton" not in get_imports(kernel_module().__file__)


def compiled_for_hopper(name: str, head_dim: int):
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler import compile as compile_kernel

    kernel = getattr(kernel_module(), f"{name}_kernel")
    options = kernel_module().launch_options(head_dim, torch.bfloat16, name == "backward", causal=False, has_mask=True)
    compiler_options = {key: options.pop(key) for key in ("num_warps", "num_stages")}
    signature = {
        "inputs": ("*bf16",) * 5 + ("*i1",),
        "outputs": ("*fp32",) * (2 if name == "forward" else 5),
        "sizes": ("i32",) * 5,
        "grads": ("*bf16", "*fp32", "*fp32"),
    }
    signature = {key: types for key, types in signature.items() if key in kernel.arg_names}
    source = ASTSource(
        fn=kernel,
        signature=signature | dict.fromkeys(options, "constexpr"),
        constexprs={(kernel.arg_names.index(key),): value for key, value in options.items()},
    )
    return compile_kernel(source, target=GPUTarget("cuda", 90, 32), options=compiler_options)


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize(("name", "head_dim"), [("forward", 256), ("backward", 128)])
def test_compiles_for_hopper(name, head_dim, tmp_path, monkeypatch):
    """To machine code, without a GPU; tensor cores multiply, and there is shared memory enough."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    compiled = compiled_for_hopper(name, head_dim)
    assert len(compiled.asm["cubin"]) > 0
    assert "mma.sync" in compiled.asm["ptx"] or "wgmma" in compiled.asm["ptx"]
    assert compiled.metadata.shared <= MOST_SHARED_BYTES


@pytest.mark.skipif(not (TRITON and torch.cuda.is_available()), reason="needs Triton and a CUDA GPU")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_on_a_gpu(head_dim, dtype, causal):
    tensors, mask, cotangent = make(2048, 2048, head_dim, "keys", dtype, rows=2)
    inputs = [tensor.cuda().requires_grad_() for tensor in tensors]
    mask, cotangent = mask.cuda(), cotangent.cuda()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    output = kernel_module().geometric_attention_triton(*inputs, mask, causal=causal)
    grads = torch.autograd.grad(output, inputs, cotangent)
    # less than one N x N tensor of every head
    assert torch.cuda.max_memory_allocated() - before < 4 * 2048 * 2048 * 4
    tolerance = 1e-4 if dtype == torch.float32 else 3e-2
    assert_near([output, *grads], exact(inputs, mask, cotangent, {"causal": causal}), tolerance)
