"""Kernels that only a GPU runs, against what is written out: geometric, FlashAttention, SDPA, flex, experts, graphs."""

import contextlib
import functools
import importlib.util
from collections.abc import Callable, Iterator
from unittest import mock

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import modeling_flash_attention_utils as hf_flash

from hf_recurrent.models.ndr.kernels import geometric_attention_triton, kernel_available
from perf.core import Table
from perf.geometric import eager_attention

from . import device as devices
from .checks import Check, NotHereError, Setting
from .correct import NEAR, Batch, Case, halt_nothing, largest_error, on, placed, word

from support import flash_attention, flex_kernel  # isort: skip - found by the import above
from support.compare import assert_same, compute, gradients  # isort: skip
from support.families import BY_NAME, LANGUAGE_BY_NAME  # isort: skip

HEAD_DIMS = (8, 16, 20, 32, 64, 96, 128, 160, 256)
# what large models have, and the largest tiles
FIRST_KERNELS = ((torch.bfloat16, 64), (torch.float32, 256), (torch.float16, 64), (torch.bfloat16, 256))
MASKS = ("none", "keys", "queries")
# of each gradient's largest value, or of one
KERNEL_TOLERANCE = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}
SOFTMAX = ("gut", "ut", "xpos_transformer", "gutlb", "sut", "block_recurrent", "albert_recurrent", "ndr_act")
FLASH = ("gut", "ut", "xpos_transformer", "gutlb", "albert_recurrent")
# queries, keys, head dim, and what all logits are near: gradients that were not finite in a run, and those that cuDNN
# computes wrongly (https://github.com/pytorch/pytorch/issues/196678, NVIDIA/cudnn-frontend/issues/1072)
SMALL_ATTENTION = {
    "three tokens": (3, 3, 16, 0.0),
    "64 tokens, low logits": (64, 64, 64, -120.0),
    "192 tokens, low logits": (192, 192, 64, -120.0),
    "one query, low logits": (1, 128, 64, -128.0),
}
HUB_KERNELS = ("kernels-community/flash-attn2", "kernels-community/flash-attn3")


def fused_inputs(head_dim: int, mask: str, dtype: torch.dtype, length: int, device: str) -> tuple[list, torch.Tensor]:
    generator = torch.Generator().manual_seed(head_dim)
    shape = 2, 2, length, head_dim
    tensors = [torch.randn(shape, generator=generator) for _ in range(3)]
    tensors[0] /= head_dim**0.5
    tensors += [torch.randn(shape[:3], generator=generator) for _ in range(2)]
    masks = {
        "none": None,
        "keys": torch.arange(length) < length * torch.arange(1, 3)[:, None] / 2,
        "queries": torch.rand(2, 1, length, length, generator=generator) < 0.7,
    }
    seen = masks[mask]
    inputs = [tensor.to(device, dtype).requires_grad_() for tensor in tensors]
    return inputs, None if seen is None else seen.to(device)


def with_gradients(attend: Callable, inputs: list[torch.Tensor], mask: torch.Tensor | None) -> list[torch.Tensor]:
    output = attend(*inputs, mask)
    cotangent = torch.linspace(-1, 1, output.numel(), device=output.device).view_as(output)
    options = {"materialize_grads": True, "allow_unused": True}
    return [output, *torch.autograd.grad(output, inputs, cotangent.to(output.dtype), **options)]


def fused_is_eager(setting: Setting, head_dim: int, dtype: torch.dtype) -> list[Table]:
    """Output and gradients of every kind of mask, each way of reading and normalising, beside float64 written out."""
    if not kernel_available(setting.device):
        raise NotHereError(f"Triton {devices.version_of('triton')} has no kernel for {setting.device}")
    if setting.device == "cpu" and dtype == torch.bfloat16:
        raise NotHereError("Triton's interpreter multiplies bfloat16 as if it were integers")
    # for strides of masks of one kind alone, since Triton compiles for each kind
    length, worst = (9 if setting.toy else 304), 0.0
    for mask in MASKS[: 1 if setting.toy else None]:
        for causal in (False, True):
            for normalize in (False, True):
                options = {"causal": causal, "normalize": normalize}
                inputs, seen = fused_inputs(head_dim, mask, dtype, length, setting.device)
                found = with_gradients(functools.partial(geometric_attention_triton, **options), inputs, seen)
                exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
                expected = with_gradients(functools.partial(eager_attention, **options), exact, seen)
                values = dict(enumerate(expected))
                error = largest_error({key: found[key].double() for key in values}, values)
                assert error <= KERNEL_TOLERANCE[dtype], f"{error} with {mask} masked, {options}"
                worst = max(worst, error)
    row = {"head dim": head_dim, "dtype": word(dtype), "length": length, "largest error": worst}
    return [Table("Fused geometric attention: output and gradients against float64", [row])]


def geometric(setting: Setting) -> Iterator[Check]:
    every = [(dtype, head_dim) for dtype in KERNEL_TOLERANCE for head_dim in HEAD_DIMS[:: 5 if setting.toy else 1]]
    for dtype, head_dim in dict.fromkeys((*(() if setting.toy else FIRST_KERNELS), *every)):
        check = functools.partial(fused_is_eager, setting, head_dim, dtype)
        yield Check(f"head dim {head_dim}, {word(dtype)}", check)


def case_of(name: str, language: bool = False) -> Case:
    return Case((LANGUAGE_BY_NAME if language else BY_NAME)[name], language)


def prepared(name: str, dtype: torch.dtype, device: str, language: bool = False) -> tuple[Case, torch.nn.Module, Batch]:
    """A model, none of whose units halts, and its batch."""
    case = case_of(name, language)
    model = case.make(case.variant)
    halt_nothing(model, case.variant)
    return case, model.to(device, dtype), on(device, case.batch)


def compared_ways(case: Case, ways: dict[str, torch.nn.Module], batch: Batch, dtype: torch.dtype) -> dict[str, float]:
    """Errors of logits, and in float32 of gradients, of the second way relative to the first."""
    (_, base), (_, other) = ways.items()
    expected, found = (compute(model, case.variant, batch) for model in (base, other))
    logits = {"logits": expected["logits"].float()}
    errors = {"logits": largest_error({"logits": found["logits"].float()}, logits)}
    tolerance = 1e-4 if dtype == torch.float32 else NEAR[dtype][0]
    assert errors["logits"] <= tolerance, errors
    wanted, got = gradients(base, batch), gradients(other, batch)
    assert all(value.isfinite().all() for value in got.values())
    errors["gradients"] = largest_error(got, wanted)
    assert dtype != torch.float32 or errors["gradients"] <= tolerance, errors
    return errors


def implementation_is_eager(
    setting: Setting, name: str, implementation: str, dtype: torch.dtype, context: Callable = contextlib.nullcontext
) -> list[Table]:
    with placed(setting) as device:
        case, eager, batch = prepared(name, dtype, device)
        _, other, _ = prepared(name, dtype, device)
        eager.set_attn_implementation("eager")
        with context():
            other.set_attn_implementation(implementation)
            try:
                errors = compared_ways(case, {"eager": eager, implementation: other}, batch, dtype)
            except RuntimeError as error:
                if "available kernel" in str(error) or "viable backend" in str(error):
                    raise NotHereError(f"torch has no such kernel for {name} in {word(dtype)}") from error
                raise
    row = {"model": name, "implementation": implementation, "dtype": word(dtype), **errors}
    return [Table("Implementations of attention: largest error against eager", [row])]


def backend_is_eager(setting: Setting, name: str, backend: SDPBackend, dtype: torch.dtype) -> list[Table]:
    if setting.device == "cpu" and backend != SDPBackend.MATH:
        raise NotHereError(f"a CPU has no {backend.name}")
    tables = implementation_is_eager(setting, name, "sdpa", dtype, lambda: sdpa_kernel(backend))
    return [table._replace(rows=[{**row, "implementation": backend.name} for row in table.rows]) for table in tables]


def varlen_of_torch() -> Callable:
    """`flash_attn_varlen_func` by torch's own FlashAttention of packed rows."""
    if importlib.util.find_spec("torch.nn.attention.varlen") is None:
        raise NotHereError(f"torch {torch.__version__} has no torch.nn.attention.varlen")
    from torch.nn.attention.varlen import varlen_attn

    def attend(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, **options):
        scale, causal = options.get("softmax_scale"), options.get("causal", False)
        windows = {"window_size": (-1, 0)} if causal else {}
        lengths = (cu_seqlens_q, cu_seqlens_k, int(max_seqlen_q), int(max_seqlen_k))
        return varlen_attn(q, k, v, *lengths, scale=scale, **windows)

    return attend


@contextlib.contextmanager
def packed_rows_of_torch() -> Iterator[None]:
    attend = varlen_of_torch()
    with flash_attention.installed(), mock.patch.object(flash_attention, "flash_attn_varlen_func", attend):
        import flash_attn

        with mock.patch.object(flash_attn, "flash_attn_varlen_func", attend):
            yield


def flash_way(setting: Setting, way: str) -> tuple[str, Callable]:
    """The name of an implementation of FlashAttention-2, and the context that it needs."""
    if way == "flash_attn":
        if setting.device == "cpu":
            # the replacement of the tests, so that what surrounds the kernel is executed
            return "flash_attention_2", flash_attention.installed
        if devices.version_of(way) is None:
            raise NotHereError("flash_attn is not installed")
        if trouble := devices.trouble_with(way):
            raise NotHereError(trouble)
        return "flash_attention_2", contextlib.nullcontext
    if setting.device == "cpu":
        raise NotHereError("its kernels need a GPU")
    if way == "torch varlen":
        return "flash_attention_2", packed_rows_of_torch
    if devices.version_of("kernels") is None:
        raise NotHereError("the package `kernels` is not installed")
    return way, contextlib.nullcontext


def flash_is_eager(setting: Setting, way: str, name: str, dtype: torch.dtype) -> list[Table]:
    implementation, context = flash_way(setting, way)
    try:
        tables = implementation_is_eager(setting, name, implementation, dtype, context)
    except OSError as error:
        raise NotHereError(f"{way} cannot be fetched: {devices.one_line(error)}") from error
    finally:
        hf_flash._loaded_implementation = None
    return [table._replace(rows=[{**row, "implementation": way} for row in table.rows]) for table in tables]


def small_attention(name: str, device: str, seed: int = 0) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Queries, keys and values (10, 2, N, D) of a case, and the mask (10, 1, Q, K)."""
    queries, keys, head_dim, logit = SMALL_ATTENTION[name]
    generator = torch.Generator(device).manual_seed(seed)
    sizes = ((10, 2, length, head_dim) for length in (queries, keys, keys))
    inputs = [torch.randn(size, generator=generator, device=device, dtype=torch.bfloat16) for size in sizes]
    mask = torch.ones(10, 1, queries, keys, dtype=torch.bool, device=device)
    if logit:
        query, key, _ = inputs
        query /= 10
        key /= 10
        query[..., 0], key[..., 0] = 1.0, logit * head_dim**0.5
    else:
        mask[1, ..., 2:] = mask[2, ..., 1:] = False
    return [tensor.requires_grad_() for tensor in inputs], mask


def poison(device: str) -> None:
    """Leave NaN in the memory that the next tensors take; torch keeps that of tensors of up to 1 MiB apart."""
    _held = [torch.full((1 << power,), torch.nan, device=device) for power in range(7, 23) for _ in range(8)]


def small_attention_is_finite(setting: Setting, name: str, without_cudnn: bool) -> list[Table]:
    """Gradients of SDPA under bfloat16, in memory that was NaN before."""
    if setting.device == "cpu":
        raise NotHereError("its kernels need a GPU")
    enabled, broken = torch.backends.cuda.cudnn_sdp_enabled(), 0
    torch.backends.cuda.enable_cudnn_sdp(enabled and not without_cudnn)
    try:
        for seed in range(300):
            poison(setting.device)
            inputs, mask = small_attention(name, setting.device, seed)
            output = torch.nn.functional.scaled_dot_product_attention(*inputs, attn_mask=mask)
            grads = torch.autograd.grad(output.float().sum(), inputs)
            broken += not all(bool(grad.isfinite().all()) for grad in grads)
    finally:
        torch.backends.cuda.enable_cudnn_sdp(enabled)
    assert not broken, f"gradients of {broken} of 300 are not finite"
    return []


def grouped_is_eager(setting: Setting, implementation: str, dtype: torch.dtype) -> list[Table]:
    with placed(setting) as device:
        case, eager, batch = prepared("sut", dtype, device)
        _, other, _ = prepared("sut", dtype, device)
        eager.set_experts_implementation("eager")
        other.set_experts_implementation(implementation)
        errors = compared_ways(case, {"eager": eager, implementation: other}, batch, dtype)
    row = {"implementation": implementation, "dtype": word(dtype), **errors}
    return [Table("Implementations of experts: largest error against eager", [row])]


def attention(setting: Setting) -> Iterator[Check]:
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    for name in SMALL_ATTENTION:
        for without_cudnn in (False, True):
            check = functools.partial(small_attention_is_finite, setting, name, without_cudnn)
            yield Check(f"SDPA of {name}, bfloat16, {'without cuDNN' if without_cudnn else 'by default'}", check)
    thin = slice(None, None, 4) if setting.toy else slice(None)
    for way in ("flash_attn", "torch varlen", *HUB_KERNELS):
        for dtype in dtypes[:1] if setting.device == "cpu" else dtypes[1:]:
            for name in FLASH[:2] if setting.toy else FLASH:
                check = functools.partial(flash_is_eager, setting, way, name, dtype)
                yield Check(f"FlashAttention-2 by {way}, {name}, {word(dtype)}", check)
    backends = [each for each in SDPBackend.__members__.values() if each.name not in ("ERROR", "OVERRIDEABLE")]
    for backend in backends:
        for dtype in dtypes[: 1 if setting.toy else 2]:
            for name in SOFTMAX[thin]:
                check = functools.partial(backend_is_eager, setting, name, backend, dtype)
                yield Check(f"SDPA by {backend.name}, {name}, {word(dtype)}", check)
    context = flex_kernel.on_cpu if setting.device == "cpu" else contextlib.nullcontext
    for name in SOFTMAX[thin]:
        check = functools.partial(flex_is_eager, setting, name, context)
        yield Check(f"flex attention, {name}, float32", check)
    for implementation in ("grouped_mm", "batched_mm"):
        for dtype in dtypes[: 1 if setting.toy else None]:
            check = functools.partial(grouped_is_eager, setting, implementation, dtype)
            yield Check(f"experts by {implementation}, {word(dtype)}", check)


def flex_is_eager(setting: Setting, name: str, context: Callable) -> list[Table]:
    """By torch's operator; in a rehearsal as it traces it, on tensors that say they are a CPU's."""
    if setting.device != "cpu":
        # past the limit of compilations, torch would compute unfused without a word
        torch.compiler.reset()
        with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
            return implementation_is_eager(setting, name, "flex_attention", torch.float32, context)
    case, eager, batch = prepared(name, torch.float32, "cpu")
    _, flex, _ = prepared(name, torch.float32, "cpu")
    eager.set_attn_implementation("eager")
    flex.set_attn_implementation("flex_attention")
    with context():
        errors = compared_ways(case, {"eager": eager, "flex_attention": flex}, batch, torch.float32)
    row = {"model": name, "implementation": "flex_attention", "dtype": "float32", **errors}
    return [Table("Implementations of attention: largest error against eager", [row])]


def compiled_is_eager(setting: Setting, name: str, language: bool, whole: bool, dtype: torch.dtype) -> list[Table]:
    """The block, or the whole model with all its steps masked, with gradients; halting is alive."""
    case = case_of(name, language)
    device = setting.device
    eager, other = (case.make(case.variant).to(device, dtype) for _ in range(2))
    batch = on(device, case.batch)
    torch.compiler.reset()
    backend = "aot_eager" if setting.toy else "inductor"
    (other if whole else other.model.block).compile(backend=backend)
    expected, found = (compute(model, case.variant, batch) for model in (eager, other))
    assert_same(found, expected, 1e-4)
    wanted, got = gradients(eager, batch), gradients(other, batch)
    assert_same(got, wanted, 1e-4)
    row = {"model": case.name, "compiled": "whole" if whole else "block", "outputs": largest_error(found, expected)}
    return [
        Table("Compiled by inductor: largest error against eager", [row | {"gradients": largest_error(got, wanted)}])
    ]


def compiled(setting: Setting) -> Iterator[Check]:
    names = [("gut", False), ("ut", True), ("ndr", False), ("sut", True), ("gutlb", False)]
    for name, language in names[:1] if setting.toy else names:
        for whole in (False, True):
            check = functools.partial(compiled_is_eager, setting, name, language, whole, torch.float32)
            title = f"{'whole' if whole else 'block of'} {name} {'language model' if language else 'classifier'}"
            yield Check(title, check)
