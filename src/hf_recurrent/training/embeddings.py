"""Token embeddings of another checkpoint for a model that is to be trained."""

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors import safe_open
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file

from ..data.tokenizers import read_tokenizer, token_of
from ..files import one_line, read_json
from ..hub.checkpoint import check_place

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ARGUMENT = "embeddings_from"
TABLE = "embed_tokens"


class Taken(NamedTuple):
    """Embeddings that were taken over: so many `rows`, of all `tokens` of a tokenizer."""

    rows: int
    tokens: int


def take_embeddings(
    model: PreTrainedModel,
    tokenizer: "PreTrainedTokenizerBase",
    name: str,
    *,
    revision: str | None = None,
    token: str | None = None,
) -> Taken:
    """Copy the input embeddings of another checkpoint into a model's, for all tokens that both know.

    Special tokens are matched by their roles, [CLS] and [SEP] with the begin and end of a text, and all others by their
    strings: "Ġcat", of bytes, is not BERT's "cat". The rows of other tokens stay as they are. A tied head follows, and
    so does the table of a decoder.

    Args:
        model: one of this package.
        tokenizer: that of `model`.
        name: any checkpoint of transformers in safetensors, a name on the Hub or a folder, with its tokenizer. Nothing
            but its table of embeddings is read.
        revision, token: of the Hub.

    Raises:
        ValueError: it has no such table, or one of another width; or no token in common but special ones. The model is
            then unchanged.
    """
    options = {"revision": revision or "main", "token": token}
    check_place(ARGUMENT, name)
    table = _table(os.path.expanduser(name), options)
    width = model.get_input_embeddings().embedding_dim
    if table.shape[1] != width:
        field = "embedding_size" if hasattr(model.config, "embedding_size") else "hidden_size"
        raise ValueError(
            f"{ARGUMENT}={name!r}: its embeddings are {table.shape[1]} wide and the model's {width}: make the model as "
            f"wide, --config '{{{field}: {table.shape[1]}}}'"
        )
    pairs = matched_tokens(tokenizer, read_tokenizer(ARGUMENT, name, **options), table.shape[0])
    special = {tokenizer.convert_tokens_to_ids(each) for each in tokenizer.all_special_tokens}
    if not pairs.keys() - special:
        raise ValueError(
            f"{ARGUMENT}={name!r}: its tokenizer has none of the model's tokens: take the same one, --tokenizer {name}"
        )
    ours, theirs = (torch.tensor(ids) for ids in (list(pairs), list(pairs.values())))
    rows = table[theirs]
    if not rows.isfinite().all():
        raise ValueError(f"{ARGUMENT}={name!r}: its embeddings hold NaN or infinite values")
    with torch.no_grad():
        for place, module in model.named_modules():
            if place.rpartition(".")[2] == TABLE:
                module.weight[ours.to(module.weight.device)] = rows.to(module.weight)
    return Taken(len(pairs), len(tokenizer))


def matched_tokens(
    tokenizer: "PreTrainedTokenizerBase", other: "PreTrainedTokenizerBase", num_rows: int
) -> dict[int, int]:
    """The id of each token that another tokenizer has, too, and a row among the first `num_rows` -> its id there."""
    known = {each: row for each, row in other.get_vocab().items() if row < num_rows}
    pairs = {row: known[each] for each, row in tokenizer.get_vocab().items() if each in known}
    special: dict[int, int] = {}
    for role in tokenizer.SPECIAL_TOKENS_ATTRIBUTES:
        ours, theirs = token_of(tokenizer, role), token_of(other, role)
        if ours is not None and theirs in known:
            # a token of several roles is that of the first: the end of a text rather than padding
            special.setdefault(tokenizer.convert_tokens_to_ids(ours), known[theirs])
    return pairs | special


def _table(name: str, options: dict[str, Any]) -> torch.Tensor:
    """The input embeddings (V, E) of a checkpoint."""
    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False, **options)
        with torch.device("meta"):
            model = AutoModel.from_config(config, trust_remote_code=False)
        embeddings = _embeddings(model)
        if embeddings is not None:
            key = next(key for key, weight in model.named_parameters() if weight is embeddings.weight)
            return _tensor(name, key, options)
    # whatever a config from elsewhere, or a damaged file, makes the loaders fail with
    except Exception as error:
        raise ValueError(f"{ARGUMENT}={name!r} does not load: {one_line(error)}") from error
    raise ValueError(f"{ARGUMENT}={name!r}: {type(model).__name__} has no embeddings of tokens")


def _embeddings(model: PreTrainedModel) -> nn.Embedding | None:
    try:
        embeddings = model.get_input_embeddings()
    except NotImplementedError:
        return None
    return embeddings if isinstance(embeddings, nn.Embedding) else None


def _tensor(name: str, key: str, options: dict[str, Any]) -> torch.Tensor:
    """The weight that a base model calls `key`, from a checkpoint of it or of one with a head.

    Of several files, those without it stay on the Hub.
    """
    index = cached_file(name, SAFE_WEIGHTS_INDEX_NAME, _raise_exceptions_for_missing_entries=False, **options)
    if index is None:
        with safe_open(cached_file(name, SAFE_WEIGHTS_NAME, **options), framework="pt") as file:
            files = dict.fromkeys(file.keys(), SAFE_WEIGHTS_NAME)
    else:
        files = read_json(index)["weight_map"]
    found = [each for each in files if each == key or each.endswith(f".{key}")]
    if len(found) != 1:
        raise ValueError(f"{len(found)} of its weights have the name {key}")
    with safe_open(cached_file(name, files[found[0]], **options), framework="pt") as file:
        return file.get_tensor(found[0])
