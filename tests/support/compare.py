"""Results of a model in a form that does not depend on where its padding is, and their comparison."""

import pytest
import torch

from hf_recurrent.models.ops.transformer_block import TransformerBlock
from hf_recurrent.models.rnn import lstm


def compute(model, variant, batch: dict[str, torch.Tensor], **options) -> dict[str, torch.Tensor]:
    """Loss, logits and halting of a batch; values of tokens and chunks that exist only, sequence by sequence."""
    options = {"output_halting": True, **options}
    with torch.no_grad():
        output = model(**batch, **options)
    return comparable(output, variant, batch["attention_mask"].bool())


def comparable(output, variant, mask: torch.Tensor) -> dict[str, torch.Tensor]:
    values = {"logits": output.logits, "loss": output.loss}
    if output.logits.dim() == 3:
        values["logits"] = output.logits[mask]
    if variant.halts:
        values["aux_loss"], values["ponder_cost"] = output.aux_loss, output.ponder_cost
        # rows, their chunks, or their tokens
        exists = output.ponder_steps >= 0
        for name in ("ponder_steps", "halting_probabilities"):
            values[name] = getattr(output, name)[exists]
    return values


def results(output, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What any model returns without a record of its steps; logits of tokens that exist only."""
    names = ("logits", "loss", "aux_loss", "ponder_cost", "ponder_steps")
    found = {name: output.get(name) for name in names if output.get(name) is not None}
    if output.logits.dim() == 3:
        found["logits"] = output.logits[batch["attention_mask"].bool()]
    return found


def gradients(model, batch: dict[str, torch.Tensor], **options) -> dict[str, torch.Tensor]:
    """Gradient of the loss of training for every parameter, zeros where there is none; also in evaluation mode."""
    model.zero_grad()
    output = model(**batch, **options)
    (output.loss if model.training or output.aux_loss is None else output.loss + output.aux_loss).backward()
    return {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        for name, parameter in model.named_parameters()
    }


def assert_finite_gradients(model) -> None:
    """Some parameters have gradients, and all that there are, are finite."""
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert found
    assert [name for name, gradient in found.items() if not gradient.isfinite().all()] == []


def assert_close(actual, expected, tolerance: float = 1e-6, min_scale: float = 0.0, name: str = "") -> None:
    """Computed tensors and numbers, or dicts and sequences of them, are equal but for the order of sums.

    Two runs of the same computation may differ in the last bits: a matrix product sums in an order that depends on
    where its operands lie in memory. Weights, configs, ids and files are compared exactly instead.

    Args:
        tolerance: of each floating-point tensor, relative to its largest value; anything else must be equal.
        min_scale: what a tensor's largest value counts as where it is smaller.
        name: the beginning of a failure's message.
    """
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys(), f"{name}{sorted(actual)} instead of {sorted(expected)}"
        for key, value in expected.items():
            assert_close(actual[key], value, tolerance, min_scale, f"{name}{key} ")
        return
    if isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected), f"{name}{len(actual)} instead of {len(expected)}"
        for number, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
            assert_close(ours, theirs, tolerance, min_scale, f"{name}{number} ")
        return
    if not isinstance(expected, torch.Tensor):
        close = pytest.approx(expected, rel=tolerance) if isinstance(expected, float) else expected
        assert actual == close, f"{name}{actual!r} instead of {expected!r}"
        return
    scale = 0.0
    if expected.is_floating_point() and expected.numel():
        # infinities are compared, but say nothing of a tolerance
        scale = max(min_scale, expected.detach().nan_to_num(0.0, 0.0, 0.0).abs().max().item())
    torch.testing.assert_close(
        actual, expected, rtol=0, atol=tolerance * scale, msg=lambda message: f"{name.strip() or 'tensor'}: {message}"
    )


def assert_same(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float = 1e-5) -> None:
    """Every tensor within `tolerance`, relative to its largest value where that is above one: other computations."""
    assert_close(actual, expected, tolerance, min_scale=1.0)


def assert_as_exact(actual: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor) -> None:
    """Float32 results of two computations are as close to that of float64, within a factor for the order of sums.

    A model whose steps magnify rounding allows more than another does, on every processor.
    """
    rounding = (expected.double() - exact).abs().max().item()
    least = 8 * torch.finfo(torch.float32).eps * exact.abs().max().item()
    torch.testing.assert_close(actual.double(), exact.double(), rtol=0, atol=max(4 * rounding, least))


def recomputed_calls(model, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets an entry with each call of what gradient checkpointing must run twice.

    Entries are made before the call, because recomputation stops as soon as it has all it needs.
    """
    calls = []
    if any(isinstance(module, torch.nn.RNNBase) for module in model.modules()):
        # which has no modules inside
        kernel = lstm.packed_lstm
        monkeypatch.setattr(lstm, "packed_lstm", lambda *inputs: calls.append(1) or kernel(*inputs))
        return calls
    core = next(module for module in model.modules() if type(module).__name__.endswith(("Attention", "DNCCell")))
    # what has no forward pass of its own, or is checkpointed itself, has a map
    core = getattr(core, "interface_proj", core)
    core = core.o_proj if type(core).forward is torch.nn.Module.forward else core
    core.register_forward_pre_hook(lambda *_: calls.append(1))
    return calls


def block_call_sizes(model, batch: dict[str, torch.Tensor], **options) -> list[int]:
    """How many sequences (or packed tokens) each application of a block works on."""
    sizes = []
    modules = dict(model.named_modules())
    shared = [module for name, module in modules.items() if name.endswith(".block")]
    blocks = shared or [module for module in modules.values() if isinstance(module, TransformerBlock)]
    handles = [block.register_forward_pre_hook(lambda _, args: sizes.append(args[0].shape[0])) for block in blocks]
    try:
        with torch.no_grad():
            model(**batch, **options)
    finally:
        for handle in handles:
            handle.remove()
    return sizes


def cache_contents(cache) -> dict[str, torch.Tensor]:
    """All that later calls read of a cache: tensors, flags, and whether gradients go through them."""
    saved = {name: value.clone() for name, value in cache.state_dict().items()}
    gradients = [value.requires_grad for layer in cache.layers for value in layer.tensors.values()]
    return {**saved, "gradients": torch.tensor(gradients), "length": torch.tensor(cache.get_seq_length())}


def same_contents(cache, before: dict[str, torch.Tensor]) -> bool:
    """Whether a cache still has the `cache_contents` from before."""
    after = cache_contents(cache)
    return after.keys() == before.keys() and all(torch.equal(after[name], value) for name, value in before.items())
