"""A random example: a tiny model with all its parameters random, and a batch of sequences for it."""

import contextlib
import dataclasses
import random
from collections.abc import Callable
from unittest import mock

import torch

from hf_recurrent import ARCHITECTURES
from hf_recurrent.models.base.base_model import kept_column_rotations
from hf_recurrent.models.depth import layouts

# models this small would not be worth packing, but are to show what large ones do
layouts.MIN_PRODUCTS_TO_PACK = 0
# standard deviation of what is added to parameters of halting heads
HALTING_SPREAD = 2.0


@dataclasses.dataclass(frozen=True)
class Row:
    """One example of a batch.

    Attributes:
        ids: of its tokens, of the source's if there are two stacks.
        second: number of the first token of its second sentence.
        label: of a classifier, one class or number, or some of several labels.
        labelled: whether each token is labelled, for a language model.
        target: ids that a decoder is to predict.
    """

    ids: tuple[int, ...]
    second: int = 0
    label: float | int | tuple[float, ...] = 0
    labelled: tuple[bool, ...] = ()
    target: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Case:
    """All that a model and the batches of an example are made of.

    Attributes:
        architecture: transformers' `model_type`.
        head: suffix of the model's class.
        fields: config fields.
        options: arguments of every forward call.
        spread: standard deviation of what is added to each initial parameter, so that none is zero or one.
        precise: whether all is computed in float64.
        seed: of the initial parameters.
        layout: seed of where batches have their padding and what it holds.
    """

    architecture: str
    head: str
    fields: dict
    options: dict
    rows: tuple[Row, ...]
    spread: float
    precise: bool
    seed: int = 0
    layout: int = 0

    @property
    def config_class(self) -> type:
        return ARCHITECTURES[self.architecture].config_class

    @property
    def model_class(self) -> type:
        known = ARCHITECTURES[self.architecture]
        return known.model_class(next(auto for auto, suffix in known.heads.items() if suffix == self.head))

    @property
    def two_stacks(self) -> bool:
        return bool(self.fields.get("is_encoder_decoder"))

    @property
    def siamese(self) -> bool:
        return self.head == "ForSequenceClassification" and self.fields.get("pair_encoding") == "siamese"

    def random(self, purpose: str) -> random.Random:
        return random.Random(f"{self.layout} {purpose}")

    def but(self, **changes) -> "Case":
        return dataclasses.replace(self, **changes)


def make_config(case: Case):
    return case.config_class(**case.fields)


def make_model(case: Case) -> torch.nn.Module:
    """In evaluation mode; the same parameters in float32 and, rounded to that, in float64."""
    torch.manual_seed(case.seed)
    model = case.model_class(make_config(case)).eval()
    for name, parameter in model.named_parameters():
        # units halt at different depths where their heads differ between them
        spread = HALTING_SPREAD if "halting_head" in name else case.spread
        parameter.data.add_(spread * torch.randn_like(parameter))
    if hasattr(model, "generation_config"):
        # rows must not end while they are generated
        model.generation_config.eos_token_id = None
    return model.double() if case.precise else model


@contextlib.contextmanager
def precision(case: Case):
    """In float64, what the library computes in float32 at least is computed in float64, too.

    These are position tables, rotations, eager attention's softmax, halting probabilities and running sums.
    """
    if not case.precise:
        yield
        return
    with computing_in(torch.float64, torch.complex128, torch.Tensor.double):
        yield


SINGLE = (torch.float32, torch.complex64, torch.Tensor.float)


@contextlib.contextmanager
def computing_in(real: torch.dtype, pairs: torch.dtype, convert: Callable[[torch.Tensor], torch.Tensor]):
    """The library finds these where it says float32, complex64 and `.float()`."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(real)
    # tables of the other precision
    kept_column_rotations.cache_clear()
    try:
        with (
            mock.patch.object(torch, "float32", real),
            mock.patch.object(torch, "complex64", pairs),
            mock.patch.object(torch.Tensor, "float", convert),
        ):
            yield
    finally:
        kept_column_rotations.cache_clear()
        torch.set_default_dtype(before)
