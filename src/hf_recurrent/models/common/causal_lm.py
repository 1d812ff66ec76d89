"""Causal language models over any base model of this package, and their hooks for `generate`.

Shapes: B sequences, S tokens, P cached tokens, E width, V token ids.
"""

import copy
from collections.abc import Callable

import torch
from torch import nn
from transformers.utils.generic import can_return_tuple

from .cache import RecurrentCache
from .initialization import embedding_like, initialized_linear
from .layers import at_least_float32
from .outputs import RecurrentCausalLMOutput
from .pretrained import TaskHead
from .validation import check_not_nan


def next_token_targets(
    inputs: torch.Tensor | None,
    vocab_size: int,
    labels: torch.Tensor | None,
    attention_mask: torch.Tensor | None = None,
    shift_labels: torch.Tensor | None = None,
) -> torch.Tensor | None:
    """Next-token targets of inputs (B, S) or (B, S, E): `shift_labels`, or `labels` (B, S) shifted by one.

    Masked padding has no target and is none. Targets are checked before the model runs, so that an error leaves its
    cache unchanged.

    Raises:
        ValueError: labels of another shape, or ids out of range.
    """
    targets = labels if shift_labels is None else shift_labels
    if targets is None or inputs is None:
        return None
    if targets.shape != inputs.shape[:2]:
        raise ValueError(
            f"`labels` has shape {tuple(targets.shape)}: expected {tuple(inputs.shape[:2])}, one id or -100 for each "
            "token"
        )
    labelled = targets != -100
    if not torch.compiler.is_compiling() and (labelled & ((targets < 0) | (targets >= vocab_size))).any():
        known = targets[labelled]
        raise ValueError(
            f"`labels` holds ids from {int(known.min())} to {int(known.max())} but `config.vocab_size` is "
            f"{vocab_size}: pass token ids, or -100 for tokens without a target"
        )
    # the mask may also cover cached tokens; the base model rejects one of a wrong shape
    padding = None if attention_mask is None else attention_mask[:, -targets.shape[1] :] == 0
    if padding is not None and padding.shape != targets.shape:
        padding = None
    if shift_labels is None:
        targets = targets if padding is None else targets.masked_fill(padding, -100)
        targets = nn.functional.pad(targets[:, 1:], (0, 1), value=-100)
    # padding predicts nothing, either
    return targets if padding is None else targets.masked_fill(padding, -100)


def next_token_loss(logits: torch.Tensor, targets: torch.Tensor | None) -> torch.Tensor | None:
    """Mean cross-entropy in nats over the labelled tokens: logits (B, S, V), targets (B, S), or -100.

    The loss is zero without labelled tokens.
    """
    if targets is None:
        return None
    total = nn.functional.cross_entropy(at_least_float32(logits.flatten(0, 1)), targets.flatten(), reduction="sum")
    return total / (targets != -100).sum().clamp_min(1)


def base_outputs(outputs) -> dict:
    """The fields of a base model's output that a head returns, too."""
    return {name: value for name, value in outputs.items() if name not in ("last_hidden_state", "router_statistics")}


class RecurrentCacheMixin:
    """Generation with a `RecurrentCache`."""

    def _prepare_cache_for_generation(self, generation_config, model_kwargs, *args, **kwargs):
        """Pass `generate` an empty cache of this model, because it would create a `DynamicCache`."""
        if generation_config.use_cache is not False and model_kwargs.get("past_key_values") is None:
            kind = generation_config.cache_implementation
            if kind not in (None, "dynamic"):
                raise ValueError(
                    f"cache_implementation is {kind!r}: this model caches more than keys and values and creates its "
                    "own cache; leave it unset"
                )
            # transformers rejects an implementation beside a cache
            generation_config.cache_implementation = None
            model_kwargs["past_key_values"] = self.model.new_cache(model_kwargs.get("max_steps"))
        return super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)

    def init_continuous_batching(self, *args, **kwargs):
        raise ValueError(
            "continuous batching caches keys and values once for each layer, but depth-recurrent and chunk-recurrent "
            "models need more: call generate() on a batch padded on the left"
        )


class ForCausalLM(RecurrentCacheMixin):
    """Forward pass and head of a causal language model; an architecture adds `base_model_class` and `GenerationMixin`.

    A config that is not causal is copied and changed: each token then halts by itself, decided by its own state and
    those of the tokens before.
    """

    # both loss terms are means: Trainer must divide them by the accumulation steps itself
    accepts_loss_kwargs = False
    base_model_class: type

    def __init__(self, config):
        if not config.is_causal:
            config = copy.deepcopy(config)
            config.is_causal = True
        super().__init__(config)
        self.model = self.base_model_class(config)
        if config.lm_head == "mlp":
            self.lm_head = TaskHead(config.hidden_size, config.hidden_size, config.vocab_size)
            self._tied_weights_keys = {"lm_head.output.weight": "model.embed_tokens.weight"}
        else:
            initializer = self.lm_head_initializer(config)
            self.lm_head = initialized_linear(config.hidden_size, config.vocab_size, initializer, bias=False)
            self._tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
        self.post_init()

    @staticmethod
    def lm_head_initializer(config) -> Callable[[nn.Linear], None]:
        return embedding_like(config.initializer_range)

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head.output if self.config.lm_head == "mlp" else self.lm_head

    def set_output_embeddings(self, value: nn.Linear) -> None:
        if self.config.lm_head == "mlp":
            self.lm_head.output = value
        else:
            self.lm_head = value

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        past_key_values: RecurrentCache | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        output_halting: bool = False,
        output_gates: bool = False,
        max_steps: int | None = None,
        halting_threshold: float | None = None,
        detach: bool = False,
        start_of_document: torch.BoolTensor | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        **kwargs,
    ) -> RecurrentCausalLMOutput:
        """Predict the token after each. Arguments are those of the base model, and:

        Args:
            labels: (B, S) ids aligned with the inputs, -100 for tokens without a target.
            logits_to_keep: how many of the last tokens to give logits for, 0 for all, or (n,) their indices.
            kwargs: `shift_labels`, labels aligned with the logits, i.e. of the token after each. They override
                `labels`; a sequence that is read in pieces needs them, for the label after the last token of a piece.
                (Trainer would require every named parameter whose name contains "label".) And arguments of the
                architecture's own.

        Raises:
            ValueError: as the base model; or labels of another shape or out of range, or NaN logits.
        """
        inputs = input_ids if inputs_embeds is None else inputs_embeds
        model_kwargs, shift_labels = self.check_arguments(kwargs, labels, logits_to_keep)
        targets = next_token_targets(inputs, self.config.vocab_size, labels, attention_mask, shift_labels)
        outputs = self.model(
            input_ids,
            attention_mask,
            inputs_embeds=inputs_embeds,
            past_key_values=past_key_values,
            use_cache=use_cache,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            output_halting=output_halting,
            output_gates=output_gates,
            max_steps=max_steps,
            halting_threshold=halting_threshold,
            detach=detach,
            start_of_document=start_of_document,
            pooling=False,
            return_dict=True,
            **model_kwargs,
            **(self.loss_options() if targets is not None else {}),
        )
        columns = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.predict(outputs.last_hidden_state[:, columns])
        check_not_nan("the logits are", logits)
        loss, aux_loss = self.total_loss(next_token_loss(logits, targets), outputs, targets)
        return RecurrentCausalLMOutput(loss=loss, logits=logits, aux_loss=aux_loss, **base_outputs(outputs))

    def predict(self, states: torch.Tensor) -> torch.Tensor:
        """Final states (B, S, E) -> logits (B, S, V)."""
        return self.lm_head(states)

    def check_arguments(
        self, kwargs: dict, labels, logits_to_keep: int | torch.Tensor
    ) -> tuple[dict, torch.Tensor | None]:
        """Check arguments beyond the signature -> those of the architecture's own, and `shift_labels`."""
        unknown = sorted(kwargs.keys() - {"shift_labels", *self.model.model_arguments})
        if unknown:
            raise TypeError(f"{type(self).__name__}.forward() got an unexpected keyword argument {unknown[0]!r}")
        shift_labels = kwargs.get("shift_labels")
        all_logits = isinstance(logits_to_keep, int) and logits_to_keep == 0
        if not all_logits and (labels is not None or shift_labels is not None):
            raise ValueError(f"logits_to_keep is {logits_to_keep}: labels need the logits of all tokens, leave it at 0")
        return {name: value for name, value in kwargs.items() if name != "shift_labels"}, shift_labels
