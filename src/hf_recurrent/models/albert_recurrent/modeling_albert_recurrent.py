"""ALBERT (https://arxiv.org/abs/1909.11942) as a model of adaptive depth, with PABEE's classifiers of each step
(https://arxiv.org/abs/2006.04152).
"""

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

import torch
from torch import nn

from ..base.base_model import DepthModel, ForwardCall, pool
from ..base.pretrained import RecurrentPreTrainedModel
from ..base.shared_block import SharedBlockModel
from ..depth.loop import DepthOptions, DepthOutput
from ..heads.choices import ForMultipleChoice
from ..heads.classification import ForSequenceClassification
from ..heads.masked import ForMaskedLM
from ..heads.questions import ForQuestionAnswering
from ..heads.tokens import ForTokenClassification
from ..ops.attention import NO_ROTATIONS, PaddedContext
from ..ops.checks import check_given_positions, refuse, unknown_ids
from ..ops.graphs import in_graph
from ..ops.initialization import embedding_like
from ..ops.layers import Dropout, dropout
from ..ops.masks import visible_keys
from ..ops.positions import token_positions
from ..ops.sharding import touch_all_parameters
from .configuration_albert_recurrent import AlbertRecurrentConfig
from .group import AlbertGroup, activation_function


class AlbertRecurrentPreTrainedModel(RecurrentPreTrainedModel):
    config: AlbertRecurrentConfig
    _no_split_modules = ["AlbertGroup"]


class AlbertRecurrentModel(SharedBlockModel, DepthModel, AlbertRecurrentPreTrainedModel):
    """A group of layers, or several in turn, iterated for a fixed number of steps or until an exit criterion holds.

    Args:
        add_pooling_layer: whether there is a map from the first token's state to the features of a sequence.
    """

    depth_follows_length = False
    model_arguments = ("position_ids",)

    def __init__(self, config: AlbertRecurrentConfig, add_pooling_layer: bool = True):
        super().__init__(config)
        width = config.embedding_size
        self.build_embedding(config, width, dropout=0.0)
        self.embed_positions = nn.Embedding(config.max_position_embeddings, width)
        self.embed_positions.initializer = embedding_like(config.initializer_range)
        self.embedding_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.embedding_dropout = Dropout(config.dropout)
        self.embedding_proj = nn.Linear(width, config.hidden_size)
        self.groups = nn.ModuleList([AlbertGroup(config) for _ in range(config.num_hidden_groups)])
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if add_pooling_layer else None
        self.post_init()

    @property
    def block(self) -> AlbertGroup:
        """The block of all steps, if there is one group."""
        return self.groups[0]

    def depth_blocks(self, max_depth: int) -> Sequence[nn.Module]:
        groups, depth = self.groups, self.config.num_hidden_layers
        separate = self.config.step_classifiers == "separate"
        if max_depth > depth and (separate or len(groups) > 1):
            reason = f"the depth steps of this model are divided among {len(groups)} groups of layers"
            if separate:
                reason = "each depth step of this model has a classifier of its own (step_classifiers='separate')"
            raise ValueError(f"max_depth is {max_depth}, but {reason}: pass at most {depth}")
        if len(groups) == 1:
            return groups
        return [groups[int(step / (depth / len(groups)))] for step in range(max_depth)]

    def encode(self, hidden: torch.Tensor, mask: torch.Tensor, call: ForwardCall) -> DepthOutput:
        positions, most = call.model_kwargs.get("position_ids"), self.config.max_position_embeddings
        if positions is None:
            positions = token_positions(mask)
        else:
            remedy = "pass positions that have an embedding"
            check_given_positions("position_ids", positions, tuple(mask.shape))
            refuse(unknown_ids("position_ids", positions, most, remedy, field="max_position_embeddings"))
        if mask.shape[1] > most and not in_graph() and int(positions.max()) >= most:
            raise ValueError(
                f"a sequence has {int(positions.max()) + 1} tokens, but this model has embeddings of {most} positions "
                "(max_position_embeddings): cut it, for example with the tokenizer's truncation=True"
            )
        hidden = self.embedding_norm(hidden + self.embed_positions(positions))
        hidden = self.embedding_proj(self.embedding_dropout(hidden))
        context = PaddedContext(visible_keys(self.config, hidden, mask), NO_ROTATIONS)
        depth = self.run_depth(hidden, mask, context, call, None)
        return depth._replace(hidden_states=touch_all_parameters(depth.hidden_states, self))

    def features(self, states, mask, rows=None, columns=None) -> torch.Tensor:
        pooled = pool(states, mask, "cls")
        return pooled if self.pooler is None else self.pooler(pooled).tanh()

    def pooled(self, depth: DepthOutput, mask: torch.Tensor) -> torch.Tensor:
        return self.features(depth.hidden_states, mask)

    def depth_options(self, call: ForwardCall, max_depth: int) -> DepthOptions:
        options = super().depth_options(call, max_depth)
        # a loop in a graph has one body
        return options if len(self.groups) == 1 else options._replace(loop_in_graph=None)


# a `ModuleList` cannot be one of peft's `modules_to_save`
class StepClassifiers(nn.Sequential):
    """A linear classifier for each depth step (PABEE, section 3)."""

    def __init__(self, config, num_features: int):
        super().__init__(*(nn.Linear(num_features, config.num_labels) for _ in range(config.num_hidden_layers)))

    def forward(self, features: torch.Tensor, steps: int | torch.Tensor) -> torch.Tensor:
        """Logits (n, C) from features (n, F) after so many steps, of all units or of each (n,)."""
        if not isinstance(steps, torch.Tensor):
            return self[steps - 1](features)
        logits = torch.stack([classifier(features) for classifier in self])
        return logits[steps - 1, torch.arange(len(features), device=features.device)]


def predict_dropped(model, features: torch.Tensor, steps: int | torch.Tensor | None = None) -> torch.Tensor:
    """`predict` of a head that drops features of its classifier."""
    return model.classifier(dropout(features, model.config.classifier_dropout, model.training))


class AlbertRecurrentForSequenceClassification(ForSequenceClassification, AlbertRecurrentPreTrainedModel):
    base_model_class = AlbertRecurrentModel

    def build_head(self, config) -> None:
        if config.step_classifiers == "separate":
            self.classifiers = StepClassifiers(config, self.num_features)
        else:
            super().build_head(config)

    def predict(self, features: torch.Tensor, steps: int | torch.Tensor | None = None) -> torch.Tensor:
        if self.config.step_classifiers == "shared":
            return predict_dropped(self, features)
        return self.classifiers(dropout(features, self.config.classifier_dropout, self.training), steps)


class AlbertRecurrentForTokenClassification(ForTokenClassification, AlbertRecurrentPreTrainedModel):
    base_model_class = partial(AlbertRecurrentModel, add_pooling_layer=False)
    predict = predict_dropped


class FiniteLayerNorm(nn.LayerNorm):
    """In float16 computed in float32: the inverse deviation of a zero state, as at padding, exceeds float16."""

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        if states.dtype is not torch.float16:
            return super().forward(states)
        weight, bias = self.weight.float(), self.bias.float()
        return nn.functional.layer_norm(states.float(), self.normalized_shape, weight, bias, self.eps).half()


class AlbertRecurrentForMaskedLM(ForMaskedLM, AlbertRecurrentPreTrainedModel):
    base_model_class = partial(AlbertRecurrentModel, add_pooling_layer=False)

    def build_head(self, config) -> None:
        layers = {
            "dense": nn.Linear(config.hidden_size, config.embedding_size),
            "activation": activation_function(config.hidden_act),
            "norm": FiniteLayerNorm(config.embedding_size, eps=config.layer_norm_eps),
            "decoder": nn.Linear(config.embedding_size, config.vocab_size),
        }
        self.lm_head = nn.Sequential(OrderedDict(layers))
        self._tied_weights_keys = {"lm_head.decoder.weight": "model.embed_tokens.weight"}

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head.decoder

    def set_output_embeddings(self, value: nn.Linear) -> None:
        self.lm_head.decoder = value


class AlbertRecurrentForQuestionAnswering(ForQuestionAnswering, AlbertRecurrentPreTrainedModel):
    base_model_class = partial(AlbertRecurrentModel, add_pooling_layer=False)


class AlbertRecurrentForMultipleChoice(ForMultipleChoice, AlbertRecurrentPreTrainedModel):
    base_model_class = AlbertRecurrentModel
    predict = predict_dropped


__all__ = [
    "AlbertRecurrentForMaskedLM",
    "AlbertRecurrentForMultipleChoice",
    "AlbertRecurrentForQuestionAnswering",
    "AlbertRecurrentForSequenceClassification",
    "AlbertRecurrentForTokenClassification",
    "AlbertRecurrentModel",
    "AlbertRecurrentPreTrainedModel",
]
