"""Huginn (https://arxiv.org/abs/2502.05171) as a model of adaptive depth.

Shapes: B sequences, S tokens, P cached tokens, R rows of W columns, N packed tokens, E width.
"""

import math

import torch
from torch import nn
from transformers.generation import GenerationMixin

from ..base.base_model import ForwardCall, pool, row_distribution, run_layers
from ..base.pretrained import RecurrentPreTrainedModel
from ..base.stacked_depth import CheckpointedLayer, StackedDepthModel
from ..config.fields import shown
from ..depth.depth_cache import DepthCache, DepthLayer
from ..depth.loop import DepthOutput
from ..heads.causal import ForCausalLM
from ..heads.choices import ForMultipleChoice
from ..heads.classification import ForSequenceClassification
from ..heads.generation import ASSISTED
from ..heads.questions import ForQuestionAnswering
from ..heads.tokens import ForTokenClassification
from ..ops.checks import check_embeddings
from ..ops.layers import RMSNorm
from ..ops.masks import mapped
from ..ops.sharding import touch_all_parameters
from .configuration_huginn_recurrent import HuginnRecurrentConfig
from .layer import HuginnBlock, build_layer

# of the authors' initial states, whatever the width, and where they are cut
STATE_STD = math.sqrt(2 / 5)
STATE_CUT = 3.0


class HuginnRecurrentPreTrainedModel(RecurrentPreTrainedModel):
    config: HuginnRecurrentConfig
    _no_split_modules = ["HuginnBlock", "CheckpointedLayer"]
    # the authors' table of rotations, which is computed here
    _keys_to_ignore_on_load_unexpected = [r"^freqs_cis$"]


class HuginnRecurrentModel(StackedDepthModel, HuginnRecurrentPreTrainedModel):
    """A prelude, a core that is iterated from an initial state, and a coda (section 3).

    Every step of the core sees the output of the prelude, the embedded input. Exit criteria look at the state of a
    token, or at what it would predict if the coda were applied to it alone.

    Beside the arguments of all base models it takes `initial_states` (B, S, E), of each token before the first step,
    in the place of the config's; `generate` takes those of the prompt's tokens.
    """

    model_arguments = ("position_ids", "initial_states")

    def __init__(self, config: HuginnRecurrentConfig):
        super().__init__(config)
        self.build_embedding(config)
        self.prelude, self.coda = (
            nn.ModuleList([build_layer(CheckpointedLayer, config, layer) for layer in range(number)])
            for number in (config.prelude_layers, config.coda_layers)
        )
        self.block = HuginnBlock(config)
        self.norm = RMSNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.post_init()

    def embedded(self, *inputs: torch.Tensor | None) -> torch.Tensor:
        return super().embedded(*inputs) * math.sqrt(self.config.hidden_size)

    def new_cache(self, max_depth: int | None = None) -> DepthCache:
        outer = [DepthLayer() for _ in range(len(self.prelude) + len(self.coda))]
        return DepthCache(self.cache_steps(max_depth), self.signature(), self.config.layers_per_step, outer)

    def signature(self) -> str:
        return f"{super().signature()}, {len(self.prelude)} before them and {len(self.coda)} after"

    def encode(self, hidden: torch.Tensor, mask: torch.Tensor, call: ForwardCall) -> DepthOutput:
        cache, length = call.cache, hidden.shape[1]
        core = None if cache is None else cache.view(mask, length)
        new = mask if core is None else core.new(mask)
        context = self.context(hidden, mask, call)

        def through(layers: nn.ModuleList, states: torch.Tensor, first: int) -> tuple:
            """States (B, S, E) after layers that are applied once, and what is to be cached of them."""
            view = None if cache is None else cache.view(mask, length, slice(first, first + len(layers)))
            plain = call._replace(record_states=False)
            return run_layers(layers, states, new, context, plain, view, self.config).hidden_states, view

        def decoded(states: torch.Tensor) -> tuple:
            """Running states (B, S, 2 E) after the coda, (B, S, E)."""
            found, view = through(self.coda, self.norm(self.watched(states)), len(self.prelude))
            return torch.where(new[..., None], self.norm(found), 0.0), view

        embedded, prelude = through(self.prelude, hidden, 0)
        # running states are both, side by side
        started = torch.cat((self.initial_states(embedded, call.model_kwargs.get("initial_states")), embedded), dim=-1)
        depth = self.run_depth(started, new, context, call, core)
        if call.record_steps:
            features = [decoded(states)[0] for states in depth.all_hidden_states[1:]]
            depth = depth._replace(
                step_features=tuple(pool(each, new, self.config.pooling) if call.pool else each for each in features),
                halting_distribution=row_distribution(depth.halting_probabilities, new, by_row=call.pool),
            )
        final, coda = decoded(depth.hidden_states)
        for view in (prelude, core, coda):
            if view is not None:
                view.commit()
        return depth._replace(
            hidden_states=touch_all_parameters(final, self),
            all_hidden_states=mapped(depth.all_hidden_states, self.watched),
        )

    def initial_states(self, embedded: torch.Tensor, given: torch.Tensor | None) -> torch.Tensor:
        """States (B, S, E) of tokens before the first step: the given ones, or the config's."""
        config = self.config
        if given is not None:
            check_embeddings("initial_states", given, embedded.shape[-1])
            if given.shape != embedded.shape:
                raise ValueError(
                    f"`initial_states` has shape {tuple(given.shape)}: the inputs have {tuple(embedded.shape[:2])} "
                    f"tokens, pass {tuple(embedded.shape)}, one state for each"
                )
            return given.to(embedded.dtype)
        if config.initial_state == "zero" or (config.initial_state == "random_in_training" and not self.training):
            return torch.zeros_like(embedded)
        noise = nn.init.trunc_normal_(torch.empty_like(embedded), a=-STATE_CUT, b=STATE_CUT)
        return noise * (STATE_STD * config.initial_state_scale)

    def watched(self, states: torch.Tensor) -> torch.Tensor:
        """Without the embedded input, which no step changes."""
        return states.chunk(2, dim=-1)[0]

    def readout(self, states: torch.Tensor) -> torch.Tensor:
        """Running states (..., 2 E) as heads would read them, were the coda applied to each token alone: (..., E).

        The coda's keys of other tokens are those of their final states, which are not known before they stop.
        """
        states = self.norm(self.watched(states))
        for layer in self.coda:
            # a token that sees itself only gives itself all of the weight
            value = layer.attention.qkv_proj(layer.attention_norm(states)).chunk(3, dim=-1)[2]
            states = layer.updated(states, layer.attention.o_proj(value))
        return self.norm(states)


class HuginnRecurrentForSequenceClassification(ForSequenceClassification, HuginnRecurrentPreTrainedModel):
    base_model_class = HuginnRecurrentModel


class HuginnRecurrentForTokenClassification(ForTokenClassification, HuginnRecurrentPreTrainedModel):
    base_model_class = HuginnRecurrentModel


class HuginnRecurrentForQuestionAnswering(ForQuestionAnswering, HuginnRecurrentPreTrainedModel):
    base_model_class = HuginnRecurrentModel


class HuginnRecurrentForMultipleChoice(ForMultipleChoice, HuginnRecurrentPreTrainedModel):
    base_model_class = HuginnRecurrentModel


class HuginnRecurrentForCausalLM(ForCausalLM, HuginnRecurrentPreTrainedModel, GenerationMixin):
    base_model_class = HuginnRecurrentModel

    def check_generation(self, chosen: dict) -> None:
        if chosen.get("initial_states") is None:
            return
        # of the prompt's tokens other passes read some, or read them again
        for name in (*ASSISTED, "prefill_chunk_size", "guidance_scale", "custom_generate", "use_cache"):
            value = chosen.get(name)
            if value is not None and not (name == "use_cache" and value):
                raise ValueError(
                    f"`initial_states` is given and {name} is {shown(value)}: they are those of the prompt's tokens, "
                    f"which one call must read, without others and once; leave {name} or `initial_states` out"
                )

    def prepare_inputs_for_generation(
        self, input_ids, inputs_embeds=None, initial_states=None, is_first_iteration=False, cache=None, **kwargs
    ) -> dict:
        """With the initial states of the prompt's tokens; those of later ones are the config's."""
        # `generate` looks here for the names of arguments that it may be given
        kwargs |= {} if cache is None else {"cache": cache}
        inputs = super().prepare_inputs_for_generation(
            input_ids, inputs_embeds=inputs_embeds, is_first_iteration=is_first_iteration, **kwargs
        )
        given = is_first_iteration and initial_states is not None
        return inputs | {"initial_states": initial_states} if given else inputs


__all__ = [
    "HuginnRecurrentForCausalLM",
    "HuginnRecurrentForMultipleChoice",
    "HuginnRecurrentForQuestionAnswering",
    "HuginnRecurrentForSequenceClassification",
    "HuginnRecurrentForTokenClassification",
    "HuginnRecurrentModel",
    "HuginnRecurrentPreTrainedModel",
]
