"""Checks of a call's arguments that would otherwise cause a wrong result or an obscure error.

Types, dtypes and shapes are checked in traced graphs, too. Values are not; they cost one transfer from the accelerator
for all that are checked together. Shapes: B sequences, S tokens, E width, P cached columns.
"""

from collections.abc import Callable

import torch

from ..config.fields import shown
from .graphs import in_graph

# a condition that must not hold (a 0-dimensional bool tensor), and the message if it does
Problem = tuple[torch.Tensor, Callable[[], str]]


def refuse(*problems: Problem) -> None:
    """Raise a ValueError with the message of the first condition that holds; traced graphs have no values to check."""
    if in_graph():
        return
    # one transfer for all
    wrong = [problems[0][0]] if len(problems) == 1 else values_of(*(holds for holds, _ in problems))
    for holds, (_, message) in zip(wrong, problems, strict=True):
        if holds:
            raise ValueError(message())


def is_id(dtype: torch.dtype) -> bool:
    """Whether embeddings take ids of this dtype."""
    return dtype in (torch.int64, torch.int32)


def is_number(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point


def is_real(dtype: torch.dtype) -> bool:
    return not dtype.is_complex


def check_tensor(
    name: str, value: object, fits: Callable[[torch.dtype], bool], dims: tuple[int, ...], meaning: str
) -> None:
    """Raise a ValueError unless an argument is a tensor of a fitting dtype, with one of these numbers of dimensions."""
    if not isinstance(value, torch.Tensor) or not fits(value.dtype) or value.dim() not in dims:
        raise ValueError(f"`{name}` is {shown(value)}: pass {meaning}")


def check_ids(name: str, value: object) -> None:
    """Raise a ValueError unless an argument holds one id for each token, (B, S)."""
    check_tensor(name, value, is_id, (2,), "a tensor (batch, tokens) of torch.long")


def check_embeddings(name: str, value: object, width: int) -> None:
    """Raise a ValueError unless an argument holds vectors (B, S, `width`)."""
    meaning = f"a floating-point tensor (batch, tokens, {width})"
    check_tensor(name, value, is_number, (3,), meaning)
    if value.shape[-1] != width:
        raise ValueError(f"`{name}` is {value.shape[-1]} wide: pass {meaning}")


def check_halting_threshold(threshold: float) -> float:
    number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
    if not number or not 0.0 < threshold <= 1.0:
        raise ValueError(f"`halting_threshold` is {shown(threshold)}: pass a number in (0, 1]")
    return threshold


def unknown_ids(
    name: str, ids: torch.Tensor, vocab_size: int, remedy: str, ignored: int | None = None, field: str = "vocab_size"
) -> Problem:
    """The problem of ids that are not in the vocabulary, whose size is a config field, nor the one to be ignored."""
    outside = (ids < 0) | (ids >= vocab_size)
    if ignored is not None:
        outside = outside & (ids != ignored)

    def message() -> str:
        known = ids if ignored is None else ids[ids != ignored]
        return (
            f"`{name}` holds ids from {int(known.min())} to {int(known.max())} but `config.{field}` is "
            f"{vocab_size}: {remedy}"
        )

    return outside.any(), message


def check_given_positions(name: str, positions: object, shape: tuple[int, ...]) -> None:
    """Raise a ValueError unless positions (B, S), or (1, S) of all sequences, fit inputs of this shape."""
    check_tensor(name, positions, is_id, (2,), "a tensor (batch, tokens) of torch.long")
    if tuple(positions.shape) not in (tuple(shape), (1, shape[1])):
        raise ValueError(
            f"`{name}` has shape {tuple(positions.shape)}: the inputs have {tuple(shape)}, pass one for each token"
        )
    refuse(((positions < 0).any(), lambda: f"`{name}` holds {int(positions.min())}: positions count from 0"))


def other_marks(name: str, marks: torch.Tensor, at: torch.Tensor | None = None) -> Problem:
    """The problem of marks that are neither 0 nor 1, of the tokens where the mask `at` is True."""
    wrong = (marks != 0) & (marks != 1)
    wrong = wrong if at is None else wrong & at
    return wrong.any(), lambda: f"`{name}` holds {marks[wrong][0].item()}: pass 0 or 1 for each token"


def check_mask(name: str, value: torch.Tensor, shapes: tuple[tuple[int, ...], ...], subject: str) -> torch.Tensor:
    """Check type and shape of a mask -> the same as bools. `subject` says for a message, to what it belongs."""
    if not isinstance(value, torch.Tensor) or not is_real(value.dtype):
        raise ValueError(f"`{name}` is {shown(value)}: pass a tensor with one 0 or 1 per token")
    if tuple(value.shape) not in shapes:
        raise ValueError(f"`{name}` has shape {tuple(value.shape)} but {subject}: pass one 0 or 1 per token")
    return value.bool()


def wrong_row(wrong: torch.Tensor, message: Callable[[int], str]) -> Problem:
    """The problem of wrong rows (B,), whose message is of the first one's number."""
    return wrong.any(), lambda: message(int(wrong.nonzero()[0]))


def all_padding(name: str, mask: torch.Tensor, remedy: str) -> Problem:
    """The problem of a sequence that is padding only, of a bool mask (B, S)."""
    return wrong_row(~mask.any(-1), lambda row: f"`{name}` row {row} is all padding: {remedy}")


def values_of(*tensors: torch.Tensor) -> list[float]:
    """Numbers of tensors without dimensions, by one transfer from an accelerator."""
    if tensors[0].device.type == "cpu":
        return [tensor.item() for tensor in tensors]
    return torch.stack([tensor.double() for tensor in tensors]).tolist()


def check_inputs(
    input_ids: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    token_type_ids: torch.Tensor | None,
    sizes: tuple[int, int, int],
    past_length: int | None = None,
    prefix: str = "",
) -> tuple[torch.Tensor, bool]:
    """Check the inputs of a call -> the bool mask of tokens, and whether the host knows that no token is padding.

    The mask has the shape (B, S) of the inputs. With a cache of `past_length` columns P it may also have the shape
    (B, P + S), and sequences of padding only.

    Args:
        sizes: number of ids, width of embeddings, and number of types; types are ignored if there are none.
        prefix: of the arguments' names.

    Raises:
        ValueError: neither or both inputs, of another type or shape; a mask of another shape or other values than 0 and
            1, a sequence of padding only, an id or type out of range.
    """
    vocab_size, width, type_vocab_size = sizes
    ids_name, mask_name = f"{prefix}input_ids", f"{prefix}attention_mask"
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError(f"pass exactly one of `{ids_name}` and `{prefix}inputs_embeds`")
    if inputs_embeds is None:
        check_ids(ids_name, input_ids)
    else:
        check_embeddings(f"{prefix}inputs_embeds", inputs_embeds, width)
    inputs, traced = input_ids if inputs_embeds is None else inputs_embeds, in_graph()
    shape = tuple(inputs.shape[:2])
    if not traced and 0 in shape:
        name = ids_name if inputs_embeds is None else f"{prefix}inputs_embeds"
        raise ValueError(f"`{name}` has shape {tuple(inputs.shape)}: pass at least one sequence and one token")
    if token_type_ids is not None:
        check_ids("token_type_ids", token_type_ids)
        token_type_ids = token_type_ids if type_vocab_size > 0 else None
    if token_type_ids is not None and tuple(token_type_ids.shape) != shape:
        raise ValueError(
            f"`token_type_ids` has shape {tuple(token_type_ids.shape)}: the inputs have {shape}, pass one type for "
            "each token, with a cache for each new one"
        )
    all_columns = (shape[0], shape[1] + (past_length or 0))
    if attention_mask is None:
        mask = torch.ones(all_columns, dtype=torch.bool, device=inputs.device)
    else:
        cached = f", after {past_length} columns in the cache" if past_length else ""
        mask = check_mask(mask_name, attention_mask, (shape, all_columns), f"the inputs have {shape}{cached}")
    if traced:
        return mask, attention_mask is None
    given = {"ids": input_ids, "types": token_type_ids, "marks": attention_mask}
    given = {name: tensor for name, tensor in given.items() if tensor is not None}
    # the smallest and the largest value of each, and whether every sequence has a token
    bounds = [bound for tensor in given.values() for bound in tensor.aminmax()]
    checks_rows = attention_mask is not None and past_length is None
    numbers = iter(values_of(*bounds, *([mask.any(-1).all()] if checks_rows else [])) if bounds else ())
    bounds = {name: (next(numbers), next(numbers)) for name in given}
    remedy = "was the text encoded with another model's tokenizer?"
    lowest, highest = bounds.get("marks", (1, 1))
    if checks_rows and not next(numbers):
        refuse(all_padding(mask_name, mask, "drop the row or give it a token"))
    if not lowest == highest == 1 and (lowest < 0 or highest > 1 or attention_mask.is_floating_point()):
        refuse(other_marks(mask_name, attention_mask))
    for kind, name, number, field in (
        ("ids", ids_name, vocab_size, "vocab_size"),
        ("types", "token_type_ids", type_vocab_size, "type_vocab_size"),
    ):
        if kind in bounds and not 0 <= bounds[kind][0] <= bounds[kind][1] < number:
            low, high = bounds[kind]
            raise ValueError(
                f"`{name}` holds ids from {int(low)} to {int(high)} but `config.{field}` is {number}: {remedy}"
            )
    return mask, lowest == highest == 1


def has_gaps(mask: torch.Tensor) -> bool:
    """Whether any sequence of (B, S) has padding between its tokens."""
    beginnings = (mask[:, 1:] & ~mask[:, :-1]).sum(-1) + mask[:, 0]
    return bool((beginnings > 1).any())


def check_memory(
    states: torch.Tensor | None,
    mask: torch.Tensor | None,
    batch_size: int,
    width: int,
    cached: tuple | None,
    names: tuple[str, str],
) -> torch.Tensor:
    """Check an encoder's states (B, S', E), or their `cached` keys and values -> the bool mask (B, S') of the source.

    Args:
        names: of the arguments with the states and the mask, for messages.

    Raises:
        ValueError: no states, states or a mask of another type or shape, states of another source than the cached one,
            or a source that is all padding.
    """
    if states is None and cached is None:
        raise ValueError("`encoder_hidden_states` is missing: this decoder reads an encoder, pass its final states")
    if states is not None:
        check_embeddings(names[0], states, width)
    shape = tuple(states.shape[:2] if cached is None else cached[0].shape[:2])
    if shape[0] != batch_size:
        raise ValueError(
            f"`{names[0]}` has states of shape {shape} but the target has {batch_size} sequences: pass as many sources"
        )
    if states is not None and states.shape[1] != shape[1]:
        raise ValueError(
            f"`{names[0]}` has states of {states.shape[1]} tokens but `past_key_values` was filled from a source of "
            f"{shape[1]}: start a new cache for another source"
        )
    if mask is None:
        device = states.device if cached is None else cached[0].device
        return torch.ones(shape, dtype=torch.bool, device=device)
    tokens = check_mask(names[1], mask, (shape,), f"the encoder's states have {shape}")
    refuse(all_padding(names[1], tokens, "drop the row or give it a source"), other_marks(names[1], mask))
    return tokens


def is_nan(subject: str, tensor: torch.Tensor) -> Problem:
    """The problem of NaN in what the model computed; `subject` names it, such as "the states are"."""
    return (
        tensor.isnan().any(),
        lambda: (
            f"{subject} NaN: the weights or the inputs hold NaN or infinite values; check them (e.g. `all("
            "p.isfinite().all() for p in model.parameters())`) before running the model"
        ),
    )


def check_not_nan(subject: str, tensor: torch.Tensor) -> None:
    """Raise a ValueError that names the tensor, such as "the states are", if it holds NaN."""
    refuse(is_nan(subject, tensor))
