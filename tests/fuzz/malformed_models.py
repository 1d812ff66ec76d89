"""Malformed config fields and arguments of models, by rule, and the verdict on what they are answered.

The rules read what a field or argument may be, from the declarations of the config classes and the signatures of
`forward`, and make what it may not be. The campaign draws a model, a field or an argument of it, and such a value.

    cd tests; python -m fuzz.malformed_models --seconds 600 --seed 0
"""

import copy
import functools
import inspect
import math
import random
import sys
from collections.abc import Callable, Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import torch
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    DynamicCache,
    PreTrainedModel,
)

from fuzz.campaigns import Findings, main
from fuzz.refusing.malformed import campaign_of
from fuzz.refusing.verdict import Case, verdict
from hf_recurrent.models.common.cache import HEADER
from hf_recurrent.models.common.fields import Bounds, ClassNames, DtypeName, declared_fields, shown, size_limit
from hf_recurrent.models.common.seq2seq import EncoderDecoder
from hf_recurrent.models.engine.base_model import BaseModel
from support.compare import cache_contents, same_contents
from support.families import CACHED_VARIANTS, LANGUAGE_VARIANTS, VARIANTS, VOCAB_SIZE, Variant, make_config

ROWS, LENGTH = 3, 6
# a value of each kind, and the types that it is of
KINDS: tuple[tuple[Any, tuple[type, ...]], ...] = (
    (None, (NoneType,)),
    (True, (bool,)),
    (3, (int, float)),
    (0.5, (float,)),
    ("banana", (str,)),
    (b"banana", (bytes,)),
    ([1, 2], (list,)),
    ((1, 2), (tuple,)),
    ({"a": 1}, (dict,)),
    (torch.ones(2), ()),
)


def types_of(declared: Any) -> set[type]:
    """Python's types of what a declaration allows."""
    origin, arguments = get_origin(declared), get_args(declared)
    if origin in (Union, UnionType):
        return set().union(*map(types_of, arguments))
    if origin is Annotated:
        return {str} if any(isinstance(rule, DtypeName) for rule in arguments) else types_of(arguments[0])
    if origin is Literal:
        return {type(choice) for choice in arguments}
    return {origin or declared}


def wrong_values(declared: Any) -> Iterator[Any]:
    """Values that a field may not have: of other types, out of its range, and with items of other types."""
    allowed = types_of(declared)
    for value, types in KINDS:
        if not allowed & set(types):
            yield value
    yield from values_out_of_range(declared)


def values_out_of_range(declared: Any) -> Iterator[Any]:
    origin, arguments = get_origin(declared), get_args(declared)
    if origin in (Union, UnionType):
        for each in arguments:
            yield from values_out_of_range(each)
    elif origin is Annotated:
        for rule in arguments[1:]:
            yield from RULES[type(rule)](rule)
    elif origin is Literal:
        yield from ({str: "banana", bool: True}[type(choice)] for choice in arguments[:1])
    elif origin in (list, tuple):
        for item in wrong_values(arguments[0]):
            yield origin([item])


def outside(bounds: Bounds) -> Iterator[float]:
    """Numbers out of bounds; whole ones where a size is limited."""
    if bounds.limit is not None:
        yield from (int(bounds.lowest) - 1, -(10**9), size_limit(bounds.limit) + 1, 10**9, 10**400)
        return
    yield from (math.nan, math.inf, -math.inf, 1e39, -1e39)
    if math.isfinite(bounds.lowest) and abs(bounds.lowest) < 1e30:
        yield bounds.lowest if bounds.open_low else bounds.lowest - 0.25
    if math.isfinite(bounds.highest) and abs(bounds.highest) < 1e30:
        yield bounds.highest if bounds.open_high else bounds.highest + 0.25


RULES: dict[type, Callable[[Any], Iterator[Any]]] = {
    Bounds: outside,
    DtypeName: lambda rule: iter(("float33", "nn")),
    ClassNames: lambda rule: iter(({}, {"a": "yes"}, {1: "yes"}, {0: "no", 2: "yes"})),
}


class Given(NamedTuple):
    """A malformed value of an argument, and further ways in which a message may show it."""

    value: Any
    spelled: tuple[str, ...] = ()


Rule = Callable[[Any, PreTrainedModel], Iterator[Given]]


def others(*types: type) -> Iterator[Given]:
    """A value of each kind but these; None is a missing argument."""
    return (Given(value) for value, kinds in KINDS[1:] if not set(types) & set(kinds) and not is_tensor(types, value))


def is_tensor(types: tuple[type, ...], value: Any) -> bool:
    return torch.Tensor in types and isinstance(value, torch.Tensor)


def reshaped(valid: torch.Tensor) -> Iterator[Given]:
    """A tensor of one value for each token, (B, S), in other shapes and as no tensor."""
    yield from others(torch.Tensor)
    yield Given(valid.tolist())
    yield Given(valid.to("meta"), ("meta",))
    for other in (valid.flatten(), valid[0], valid[:, None], valid[0, 0], valid[..., None], valid[:0], valid[:, :0]):
        yield Given(other)


def recast(valid: torch.Tensor) -> Iterator[Given]:
    """Ids in dtypes that ids are not of."""
    for dtype in (torch.float32, torch.bool, torch.complex64, torch.uint8, torch.bfloat16):
        yield Given(valid.to(dtype))


def with_first(valid: torch.Tensor, value: float) -> torch.Tensor:
    """A copy with another value for the first token."""
    changed = valid.clone() if valid.dtype.is_floating_point or isinstance(value, int) else valid.float()
    changed.view(-1)[0] = value
    return changed


def of_ids(valid: torch.Tensor, model: PreTrainedModel) -> Iterator[Given]:
    yield from (*reshaped(valid), *recast(valid))
    for wrong in (-1, VOCAB_SIZE, 2**40):
        yield Given(with_first(valid, wrong))


def of_labels(valid: torch.Tensor, model: PreTrainedModel) -> Iterator[Given]:
    yield from (*reshaped(valid), *recast(valid), Given(valid[:, 1:]), Given(valid[1:]))
    for wrong in (-1, -101, VOCAB_SIZE):
        yield Given(with_first(valid, wrong), (str(max(VOCAB_SIZE - 1, wrong)),))


def of_classes(valid: torch.Tensor, model: PreTrainedModel) -> Iterator[Given]:
    yield from (*others(torch.Tensor), Given(valid.tolist()))
    for other in (valid[0], valid[1:], valid[:0], valid[:, None, None], valid.to(torch.complex64)):
        yield Given(other)
    yield from (Given(with_first(valid, wrong)) for wrong in (-1, -101, model.config.num_labels))
    yield Given(valid.float())


def of_types(valid: torch.Tensor, model: PreTrainedModel) -> Iterator[Given]:
    """Numbers of sentences, which all models but siamese ones ignore."""
    shapes = [
        each for each in reshaped(valid) if not (is_tensor((torch.Tensor,), each.value) and each.value.dim() == 2)
    ]
    yield from (*shapes, *recast(valid))
    if model.config.pair_encoding == "siamese" and hasattr(model, "classifier"):
        yield from (Given(valid[:, 1:]), Given(valid[1:]), Given(torch.zeros_like(valid), ("row 0",)))
        yield from (Given(with_first(valid, wrong)) for wrong in (2, -1))


def of_mask(valid: torch.Tensor, model: PreTrainedModel) -> Iterator[Given]:
    yield from (*reshaped(valid), Given(valid[:, 1:]), Given(valid[1:]))
    yield from (Given(with_first(valid, wrong)) for wrong in (2, -1, 0.5, math.nan, math.inf, -1e9))
    yield Given(torch.cat((torch.zeros_like(valid[:1]), valid[1:])), ("row 0",))
    yield Given(torch.zeros_like(valid), ("row 0",))


def of_embeddings(valid: torch.Tensor, model: PreTrainedModel) -> Iterator[Given]:
    yield from (*others(torch.Tensor), Given(valid.tolist()))
    for other in (valid[0], valid[:, 0], valid[:, None], valid[..., 1:], valid.long(), valid[:0], valid[:, :0]):
        yield Given(other, (f"{other.shape[-1]} wide",))
    yield from (Given(with_first(valid, wrong)) for wrong in (math.nan, math.inf))
    yield from (Given(valid.double()), Given(valid.to("meta"), ("meta",)))


def of_source(valid: torch.Tensor, model: PreTrainedModel) -> Iterator[Given]:
    """Outputs of an encoder."""
    yield from (*others(tuple), Given(()), Given(({"a": 1},)), Given((None,)))
    for each in of_embeddings(valid[0], model):
        yield Given((each.value,), (*each.spelled, "states", shown(each.value)))


def of_flag(valid: Any, model: PreTrainedModel) -> Iterator[Given]:
    yield from others(bool)


def of_steps(valid: Any, model: PreTrainedModel) -> Iterator[Given]:
    yield from others(int)
    yield from (Given(wrong) for wrong in (0, -1, 0.5, math.nan))


def of_threshold(valid: Any, model: PreTrainedModel) -> Iterator[Given]:
    yield from others(float)
    yield from (Given(wrong) for wrong in (-0.5, math.nan, math.inf, -math.inf))


def of_criterion(valid: Any, model: PreTrainedModel) -> Iterator[Given]:
    yield from (*others(str), Given("banana"))


def of_cache(valid: Any, model: PreTrainedModel) -> Iterator[Given]:
    yield from (*others(), Given(DynamicCache()))


def of_positions(valid: torch.Tensor, model: PreTrainedModel) -> Iterator[Given]:
    yield from (*reshaped(valid), *recast(valid))
    for wrong in (-1, model.config.max_position_embeddings, 2**40):
        yield Given(with_first(valid, wrong))


def of_start(valid: torch.Tensor, model: PreTrainedModel) -> Iterator[Given]:
    yield from (*others(torch.Tensor), Given(valid.long()), Given(valid[1:]), Given(valid[:, None]), Given(valid[0]))


def of_kept(valid: Any, model: PreTrainedModel) -> Iterator[Given]:
    yield from others(int, torch.Tensor)
    for wrong in (
        -1,
        -2,
        torch.tensor([LENGTH]),
        torch.tensor([0.0]),
        torch.tensor([[0]]),
        torch.tensor([-LENGTH - 1]),
    ):
        yield Given(wrong)


def of_items(valid: Any, model: PreTrainedModel) -> Iterator[Given]:
    yield from others(int, float, torch.Tensor)
    yield from (Given(wrong) for wrong in (-1, -0.5, math.nan, math.inf))
    yield from (Given(wrong) for wrong in (torch.tensor([1, 2]), torch.tensor(True), torch.tensor(1j)))


# argument -> the rule for what it may not be
ARGUMENTS: dict[str, Rule] = {
    **dict.fromkeys(("input_ids", "decoder_input_ids"), of_ids),
    **dict.fromkeys(("attention_mask", "decoder_attention_mask"), of_mask),
    **dict.fromkeys(("inputs_embeds", "decoder_inputs_embeds"), of_embeddings),
    **dict.fromkeys(("max_steps", "exit_patience", "min_steps"), of_steps),
    **dict.fromkeys(("halting_threshold", "exit_threshold"), of_threshold),
    **dict.fromkeys(("use_cache", "detach", "pooling", "output_attentions", "output_hidden_states"), of_flag),
    **dict.fromkeys(("output_halting", "output_gates", "output_steps", "output_experts"), of_flag),
    "output_router_statistics": of_flag,
    "labels": of_labels,
    "shift_labels": of_labels,
    "classes": of_classes,
    "token_type_ids": of_types,
    "position_ids": of_positions,
    "initial_states": of_embeddings,
    "encoder_outputs": of_source,
    "exit_criterion": of_criterion,
    "past_key_values": of_cache,
    "start_of_document": of_start,
    "logits_to_keep": of_kept,
    "num_items_in_batch": of_items,
}
# what task models pass to base models, and stacks to each other
INTERNAL = {"self", "answer_head", "encoder_hidden_states", "encoder_attention_mask"}
# an argument -> those that it replaces
INSTEAD = {
    "inputs_embeds": ("input_ids",),
    "decoder_inputs_embeds": ("decoder_input_ids", "labels"),
    "decoder_input_ids": ("labels",),
    "encoder_outputs": ("input_ids",),
}
HEADS = {
    AutoModel: VARIANTS,
    AutoModelForSequenceClassification: VARIANTS,
    AutoModelForCausalLM: LANGUAGE_VARIANTS,
    AutoModelForSeq2SeqLM: (Variant("sut_two_stacks", "sut", {"is_encoder_decoder": True, "pooling": "end"}),),
}
MODELS = tuple((head, variant) for head, variants in HEADS.items() for variant in variants)
# those that generate with a cache
PROMPTED = tuple(
    (head, variant)
    for head, variant in MODELS
    if head in (AutoModelForCausalLM, AutoModelForSeq2SeqLM) and variant.chunking != "count"
)
CONFIGS = tuple({variant.name: variant for _, variant in MODELS}.values())


@functools.cache
def make(head: type, variant: Variant) -> PreTrainedModel:
    torch.manual_seed(0)
    return head.from_config(make_config(variant)).eval()


def arguments_of(model: PreTrainedModel) -> list[str]:
    """All arguments of `forward`, the architecture's own included, but for internal ones."""
    forward = model.forward
    if isinstance(model, EncoderDecoder):
        # which passes on what one stack or two take
        forward = model.forward_stacks if model.config.is_encoder_decoder else BaseModel.forward
    parameters = inspect.signature(forward).parameters.values()
    names = [each.name for each in parameters if each.kind is not inspect.Parameter.VAR_KEYWORD]
    own = getattr(getattr(model, "model", model), "model_arguments", ())
    takes_own = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)
    further = (*own, *(("shift_labels",) if "logits_to_keep" in names else ())) if takes_own else ()
    return [name for name in (*names, *further) if name not in INTERNAL]


def valid_arguments(model: PreTrainedModel) -> dict[str, Any]:
    """A valid value of every argument that has no default."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(4, VOCAB_SIZE, (ROWS, LENGTH), generator=generator)
    states = torch.randn(ROWS, LENGTH, model.config.hidden_size, generator=generator)
    width = model.get_input_embeddings().embedding_dim
    valid = {
        **dict.fromkeys(("input_ids", "labels", "shift_labels", "decoder_input_ids"), ids),
        **dict.fromkeys(("attention_mask", "decoder_attention_mask"), torch.ones_like(ids)),
        **dict.fromkeys(("inputs_embeds", "decoder_inputs_embeds"), states[..., :width]),
        "token_type_ids": (torch.arange(LENGTH) > 2).long().expand(ROWS, -1).contiguous(),
        "position_ids": torch.arange(LENGTH).expand(ROWS, -1).contiguous(),
        "initial_states": states,
        "encoder_outputs": (states,),
        "start_of_document": torch.zeros(ROWS, dtype=torch.bool),
    }
    if "ForSequenceClassification" in type(model).__name__:
        valid["labels"] = torch.arange(ROWS) % model.config.num_labels
    return valid


def call_with(model: PreTrainedModel, name: str, value: Any, valid: dict[str, Any]) -> None:
    """Call a model with one argument, and the valid ones that it needs beside it."""
    needed = ["input_ids", "attention_mask"]
    needed += ["token_type_ids"] * (model.config.pair_encoding == "siamese")
    needed += ["decoder_input_ids"] * model.config.is_encoder_decoder
    given = {each: valid[each] for each in needed if each not in INSTEAD.get(name, ())}
    with torch.no_grad():
        model(**{**given, name: value})


def rule_of(model: PreTrainedModel, name: str) -> Rule:
    by_class = name == "labels" and "ForSequenceClassification" in type(model).__name__
    return ARGUMENTS["classes" if by_class else name]


def answered(subject: str, name: str, given: Given, call: Callable[[], Any]) -> Case:
    """The case of a call with a malformed value."""
    try:
        call()
    except Exception as error:
        found = verdict(error, name, given.value, given.spelled)
        return Case(subject, name, given.value, found, f"{type(error).__name__}: {error}")
    return Case(subject, name, given.value, "silent", "")


def draw_argument(rng: random.Random) -> Case:
    head, variant = rng.choice(MODELS)
    model = make(head, variant)
    name, valid = rng.choice(arguments_of(model)), valid_arguments(model)
    given = rng.choice(list(rule_of(model, name)(valid.get(name), model)))
    subject = f"arguments of {variant.architecture} ({type(model).__name__}, {variant.name})"
    return answered(subject, name, given, lambda: call_with(model, name, given.value, valid))


def draw_continued(rng: random.Random) -> Case:
    """A malformed argument of a call that goes on from a cache; a refusal that changes the cache is half."""
    variant = rng.choice(CACHED_VARIANTS)
    model = make(AutoModelForCausalLM, variant)
    valid = valid_arguments(model)
    cache = model(valid["input_ids"], use_cache=True).past_key_values
    before = cache_contents(cache)
    name = rng.choice([each for each in arguments_of(model) if each not in ("past_key_values", "attention_mask")])
    given = rng.choice(list(rule_of(model, name)(valid.get(name), model)))
    arguments = {"input_ids": valid["input_ids"], "past_key_values": cache, "detach": True, name: given.value}
    for replaced in INSTEAD.get(name, ()):
        arguments.pop(replaced, None)
    subject = f"arguments beside a cache of {variant.architecture} ({variant.name})"
    case = answered(subject, name, given, lambda: model(**arguments))
    return case if case.verdict == "silent" or same_contents(cache, before) else case._replace(verdict="half")


def draw_prompt(rng: random.Random) -> Case:
    """A malformed prompt of `generate`."""
    head, variant = rng.choice(PROMPTED)
    model = make(head, variant)
    given = rng.choice(list(of_ids(valid_arguments(model)["input_ids"], model)))
    subject = f"prompts of {variant.architecture} ({type(model).__name__}, {variant.name})"
    return answered(subject, "input_ids", given, lambda: model.generate(input_ids=given.value, max_new_tokens=2))


def draw_saved_cache(rng: random.Random) -> Case:
    """A damaged `state_dict` of a cache."""
    variant = rng.choice(CACHED_VARIANTS)
    model = make(AutoModelForCausalLM, variant)
    with torch.no_grad():
        cache = model(valid_arguments(model)["input_ids"], use_cache=True).past_key_values
    state = cache.state_dict()
    name = rng.choice(sorted(state))
    damages = [
        *(Given(value, tuple(map(repr, HEADER))) for value, _ in KINDS),
        *(Given({key: each for key, each in state.items() if key != lost}, (repr(lost),)) for lost in HEADER),
        *(Given(state | {name: value}, (repr(name), shown(value))) for value, _ in KINDS[:-1]),
        Given(state | {"banana": torch.ones(ROWS)}, ("'banana'",)),
        Given(state | {"layers.-1.keys": torch.ones(ROWS)}, ("'layers.-1.keys'",)),
        Given(state | {"layers.0.keys": torch.ones(ROWS + 1)}, ("sequences",)),
    ]
    given = rng.choice(damages)
    empty = model.model.new_cache()
    subject = f"caches of {variant.architecture} ({variant.name})"
    return answered(subject, "tensors", given, lambda: empty.load_state_dict(given.value))


def draw_field(rng: random.Random) -> Case:
    """A wrong value of a config field: of a new config, of one as it is read from JSON, or assigned."""
    config = make_config(rng.choice(CONFIGS))
    config_class = type(config)
    name, declared = rng.choice(sorted(declared_fields(config_class).items()))
    value = rng.choice(list(wrong_values(declared)))
    ways = {
        "()": lambda: config_class(**{name: value}),
        ".from_dict": lambda: config_class.from_dict({**config.to_dict(), name: value}),
        " assignment": lambda: setattr(copy.deepcopy(config), name, value),
    }
    way = rng.choice(sorted(ways))
    return answered(f"fields of {config_class.model_type} ({way.strip()})", name, Given(value), ways[way])


DRAWS = (draw_field, draw_field, *[draw_argument] * 3, draw_continued, draw_prompt, draw_saved_cache)


def campaign(*, seconds: float = math.inf, count: float = math.inf, seed: int = 0) -> Findings:
    """Answers to random malformed fields, arguments, prompts and saved caches."""
    return campaign_of(lambda rng: rng.choice(DRAWS)(rng), seconds=seconds, count=count, seed=seed)


if __name__ == "__main__":
    sys.exit(main(campaign, __doc__))
