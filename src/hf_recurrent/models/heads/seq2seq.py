"""Encoder-decoder models over any two stacks of this package, and their hooks for `generate`.

Shapes: B sequences, S source tokens, T target tokens, P cached target tokens, E width, V token ids.
"""

from typing import Unpack

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import ModelOutput
from transformers.utils.generic import can_return_tuple

from ..base.arguments import RecurrentKwargs, supported
from ..base.outputs import RecurrentSeq2SeqOutput, base_outputs
from ..config.fields import shown
from ..depth.cache import Tensors, keeps_cache
from ..depth.depth_cache import DepthCache
from ..depth.objectives import objective_loss, sampled_depth
from ..ops.checks import check_ids, is_nan, refuse
from ..ops.graphs import in_graph
from ..ops.initialization import embedding_like, initialized_linear
from ..ops.layers import at_least_float32, of_tokens
from ..ops.losses import NO_TARGET, fraction_of_step, num_labelled
from ..ops.sharding import is_sharded, same_on_all_ranks
from .causal import keeps_all, kept_states, next_token_targets
from .generation import RecurrentGenerationMixin
from .head import Head


def smoothed_cross_entropies(logits: torch.Tensor, targets: torch.Tensor, smoothing: float) -> torch.Tensor:
    """Losses in nats, zero without a target: logits (B, T, V), targets (B, T), or -100 -> (B, T).

    A share `smoothing` of each target is distributed over all other ids (fairseq's label-smoothed cross-entropy).
    """
    log_probabilities = at_least_float32(logits.flatten(0, 1)).log_softmax(-1)
    flat = targets.flatten().long()
    losses = nn.functional.nll_loss(log_probabilities, flat, reduction="none")
    if smoothing > 0.0:
        labelled = (flat != NO_TARGET).to(log_probabilities.dtype)
        each = smoothing / (logits.shape[-1] - 1)
        losses = (1.0 - smoothing - each) * losses - each * (log_probabilities.sum(-1) * labelled)
    return losses.view(targets.shape)


def mean_over_labelled(losses: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean of losses (B, T), zero without a target, over the tokens that have one."""
    return losses.sum() / num_labelled(targets)


def shifted_right(labels: torch.Tensor, start: int, pad: int | None) -> torch.Tensor:
    """Decoder inputs for labels (B, T): `start`, then all labels but the last; -100 becomes padding.

    Padding may be on either side: a sequence starts at its first label.
    """
    blank = start if pad is None else pad
    before = unlabelled_before(labels)
    shifted = torch.cat((torch.full_like(labels[:, :1], start), labels[:, :-1]), dim=1)
    first = ~before & nn.functional.pad(before[:, :-1], (1, 0), value=True)
    shifted = shifted.masked_fill(first, start).masked_fill(before, blank)
    return shifted.masked_fill(shifted == NO_TARGET, blank)


def unlabelled_before(labels: torch.Tensor) -> torch.Tensor:
    """Bool (B, T), True before a sequence's first label."""
    return (labels != NO_TARGET).cumsum(-1) == 0


def read_mask(labels: torch.Tensor, ids: torch.Tensor | None, pad: int | None) -> torch.Tensor:
    """Attention mask (B, T) of a decoder's inputs for labels (B, T): 0 after a sequence's last label.

    Padding before the first label is masked, too. It is recognised by its id in `ids`; None if the inputs are the
    shifted labels.
    """
    after = unlabelled_before(labels.flip(-1)).flip(-1)
    before = unlabelled_before(labels)
    if ids is not None:
        before = before & (ids == pad) if pad is not None else torch.zeros_like(before)
    return (~(after | before)).long()


def check_target_labels(labels: torch.Tensor | None) -> torch.Tensor | None:
    """Labels (B, T), or None.

    Raises:
        ValueError: labels of another type or shape, or a sequence without any.
    """
    if labels is None:
        return None
    check_ids("labels", labels)
    if in_graph():
        return labels
    if labels.shape[1] == 0:
        raise ValueError(f"`labels` has shape {tuple(labels.shape)}: expected (batch, tokens), at least one token each")
    empty = (labels == NO_TARGET).all(-1)
    if bool(empty.any()):
        raise ValueError(
            f"`labels` row {int(empty.nonzero()[0])} is an empty target, all -100: drop the row, or give it at least "
            "the token that ends it"
        )
    return labels


def cached_source(cache: Cache | None) -> Tensors:
    """What a decoder's cache holds of a source, empty if nothing.

    These are its `keys` and `values` (B, H, S', D), and `has_padding` if the source has padding.
    """
    has_source = isinstance(cache, DepthCache) and len(cache.layers) > cache.depth
    return cache.layers[-1].tensors if has_source else {}


@keeps_cache
@can_return_tuple
def forward_stacks(
    model,
    input_ids: torch.LongTensor | None = None,
    attention_mask: torch.Tensor | None = None,
    decoder_input_ids: torch.LongTensor | None = None,
    decoder_attention_mask: torch.Tensor | None = None,
    inputs_embeds: torch.FloatTensor | None = None,
    decoder_inputs_embeds: torch.FloatTensor | None = None,
    encoder_outputs: ModelOutput | tuple | None = None,
    past_key_values: Cache | None = None,
    use_cache: bool | None = None,
    max_depth: int | None = None,
    **options,
) -> RecurrentSeq2SeqOutput:
    """Encode a source and decode a target.

    Args:
        input_ids: (B, S), or pass `inputs_embeds` (B, S, E), or `encoder_outputs` of an earlier call.
        attention_mask: (B, S), 1 at source tokens; padding may be on either side.
        decoder_input_ids: (B, T), or pass `decoder_inputs_embeds`; with `past_key_values` the new tokens.
        decoder_attention_mask: (B, T), or (B, P + T) with a cache.
        encoder_outputs: of the stack `encoder`. With labels, they need `output_router_statistics=True`: otherwise
            the router losses count the decoder only.
        past_key_values: returned by an earlier call; it is extended in place. It holds keys and values of the
            source, which need not be passed again, and is ignored if it is; its mask is needed if it has padding.
        use_cache: start a cache if none is passed.
        max_depth: of both stacks.
        options: of both stacks: `output_attentions`, `output_hidden_states`, `output_halting`, `output_experts`,
            `output_router_statistics`, `halting_threshold`, `exit_criterion`, `exit_threshold`, `exit_patience`,
            `min_depth`. Criteria that look at predictions stop the decoder only, and the encoder halts as learned.

    Raises:
        ValueError: as the stacks; or no target.
    """
    options = supported(options) | {"pooling": False, "return_dict": True}
    encoder_steps, decoder_steps = stack_steps(model, max_depth)
    if isinstance(encoder_outputs, tuple) and encoder_outputs:
        encoder_outputs = BaseModelOutput(last_hidden_state=encoder_outputs[0])
    if encoder_outputs is not None and getattr(encoder_outputs, "last_hidden_state", None) is None:
        raise ValueError(
            f"`encoder_outputs` is {shown(encoder_outputs)}: pass what the stack `encoder` returned, or a tuple "
            "that begins with its final states"
        )
    if encoder_outputs is None:
        if input_ids is None and inputs_embeds is None and cached_source(past_key_values):
            encoder_outputs = BaseModelOutput()
        else:
            inputs = {"inputs_embeds": inputs_embeds, "max_depth": encoder_steps, **options}
            encoder_outputs = model.encoder(input_ids, attention_mask, **inputs)
    if decoder_input_ids is None and decoder_inputs_embeds is None:
        raise ValueError(
            "neither `decoder_input_ids` nor `decoder_inputs_embeds` was passed: pass the decoder's inputs, pass "
            "`labels` to a model with a head, or call generate()"
        )
    decoded = model.decoder(
        decoder_input_ids,
        decoder_attention_mask,
        inputs_embeds=decoder_inputs_embeds,
        past_key_values=past_key_values,
        use_cache=use_cache,
        encoder_hidden_states=encoder_outputs.last_hidden_state,
        encoder_attention_mask=attention_mask,
        max_depth=decoder_steps,
        **options,
    )
    # records of the decoder have its prefix, other fields none
    records = ("hidden_states", "attentions")
    fields = {f"decoder_{name}" if name in records else name: value for name, value in decoded.items()}
    named = ((f"encoder_{name}", value) for name, value in encoder_outputs.items())
    fields |= {name: value for name, value in named if name in RecurrentSeq2SeqOutput.__dataclass_fields__}
    if decoded.router_statistics is not None:
        statistics = encoder_outputs.get("router_statistics") or ()
        fields["router_statistics"] = (*statistics, *decoded.router_statistics)
    return RecurrentSeq2SeqOutput(**fields)


def stack_steps(model, max_depth: int | None) -> tuple[int | None, int | None]:
    """`max_depth` of both stacks; in training that of either may be drawn, while the other runs at full depth."""
    config, generator = model.config, model.depth_generator
    if max_depth is not None or not model.training or config.depth_sampling == "fixed":
        return max_depth, max_depth
    for_encoder = int(torch.randint(2, (), generator=generator))
    stack = model.encoder if for_encoder else model.decoder
    drawn = [for_encoder, sampled_depth(config, stack.config.num_hidden_layers, generator)]
    for_encoder, steps = same_on_all_ranks(drawn, model.device) if is_sharded(model) else drawn
    return (steps, None) if for_encoder else (None, steps)


class ForConditionalGeneration(RecurrentGenerationMixin, Head):
    """The head of an encoder-decoder model; an architecture adds `GenerationMixin`."""

    summary = "with an encoder, a decoder and a map to token ids, such as for translation or semantic parsing."
    example = (
        ", is_encoder_decoder=True",
        """
>>> ids, labels = torch.tensor([[5, 6, 3]]), torch.tensor([[7, 8, 9, 3]])
>>> model(ids, labels=labels).logits.shape == (1, 4, model.config.vocab_size)
True
>>> model.generate(ids, max_new_tokens=2, min_new_tokens=2, do_sample=False).shape
torch.Size([1, 3])
""",
    )

    def __init__(self, config):
        if not config.is_encoder_decoder:
            raise ValueError(
                f"config field `is_encoder_decoder` is False: {type(self).__name__} needs a decoder; start a new model "
                "with is_encoder_decoder=True, or load the checkpoint with the class it was saved from"
            )
        super().__init__(config)

    def build_head(self, config) -> None:
        initializer = embedding_like(config.initializer_range)
        self.lm_head = initialized_linear(config.hidden_size, config.vocab_size, initializer, bias=False)
        self._tied_weights_keys = {"lm_head.weight": "model.encoder.embed_tokens.weight"}

    def predict(self, features: torch.Tensor, steps: int | torch.Tensor | None = None) -> torch.Tensor:
        return self.lm_head(features)

    def check_generation(self, chosen: dict) -> None:
        if is_sharded(self):
            raise ValueError(
                "the parameters of this model are divided among processes, and `generate` calls its encoder alone, "
                "which does not gather them: save the model, and generate with one that is loaded whole"
            )
        scale = chosen.get("guidance_scale")
        if scale not in (None, 1):
            raise ValueError(
                f"guidance_scale is {shown(scale)}: its passes leave the prompt out, without which this decoder has no "
                "source to read; leave it out, or use a model loaded with AutoModelForCausalLM"
            )

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Decoder inputs (B, T) for labels (B, T)."""
        start = self.config.decoder_start_token_id
        if start is None:
            raise ValueError(
                "config field `decoder_start_token_id` is None: set it to the id a decoder starts with, e.g. EOS"
            )
        return shifted_right(check_target_labels(labels), start, self.config.pad_token_id)

    @keeps_cache
    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        decoder_inputs_embeds: torch.FloatTensor | None = None,
        encoder_outputs: ModelOutput | tuple | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool | None = None,
        labels: torch.LongTensor | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[RecurrentKwargs],
    ) -> RecurrentSeq2SeqOutput:
        """Predict a target.

        Args:
            input_ids: (B, S) source ids, or pass `inputs_embeds` (B, S, E), or `encoder_outputs` of an earlier call.
            attention_mask: (B, S), 1 at source tokens and 0 at padding, on either side.
            decoder_input_ids: (B, T), or pass `decoder_inputs_embeds` (B, T, E); with `past_key_values` the new tokens.
                By default the labels shifted by one, after `config.decoder_start_token_id`.
            decoder_attention_mask: (B, T), or (B, P + T) with a cache.
            encoder_outputs: of the stack `encoder`. With labels, they need `output_router_statistics=True`: otherwise
                the router losses count the decoder only.
            past_key_values: cache that an earlier call returned, which also holds the source; it is extended in place.
            use_cache: start a cache if none is passed; by default only if one is passed.
            labels: (B, T) ids to predict, -100 for tokens without a target.
            logits_to_keep: how many of the last target tokens to give logits for, 0 for all, or (n,) their indices.
            num_items_in_batch: labels of all accumulated batches, from `Trainer`: `loss` is then this batch's part.
            kwargs: see `RecurrentKwargs`; and `output_experts`, whether to return the experts of each token.

        Returns:
            `RecurrentSeq2SeqOutput` with `logits` (B, T, V), or of the tokens to keep.

        Raises:
            ValueError: see the base model; or labels of another shape, out of range, or an empty target.
        """
        whole = keeps_all(logits_to_keep, labels is not None)
        inputs = given = decoder_input_ids if decoder_inputs_embeds is None else decoder_inputs_embeds
        if labels is not None and given is None:
            inputs = decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        labels = check_target_labels(labels)
        targets = next_token_targets(inputs, self.config.vocab_size, None, None, labels, shifted_name="labels")
        marks = decoder_attention_mask is None and past_key_values is None and decoder_input_ids is not None
        if targets is not None and marks:
            decoder_attention_mask = read_mask(labels, given, self.config.pad_token_id)
        target = {
            "attention_mask": attention_mask,
            "decoder_input_ids": decoder_input_ids,
            "decoder_attention_mask": decoder_attention_mask,
            "decoder_inputs_embeds": decoder_inputs_embeds,
            "answer_head": self.answer_head(),
            "return_dict": True,
        }
        outputs = self.model(
            input_ids,
            inputs_embeds=inputs_embeds,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            use_cache=use_cache,
            **target,
            **(self.loss_options() if targets is not None else {}),
            **kwargs,
        )
        states, problems = kept_states(outputs.last_hidden_state, logits_to_keep)
        logits = of_tokens(self.lm_head, states, decoder_attention_mask if whole else None)
        refuse(*problems, is_nan("the logits are", logits))
        losses = {}
        if targets is not None:
            loss = mean_over_labelled(smoothed_cross_entropies(logits, targets, self.config.label_smoothing), targets)
            loss = self.loss_of_steps(loss, outputs, targets, target) if self.supervises_steps else loss
            fraction = fraction_of_step(labels, num_items_in_batch)
            losses = self.losses(loss, outputs, num_labelled(targets), fraction)
        return RecurrentSeq2SeqOutput(logits=logits, **losses, **base_outputs(outputs))

    def loss_of_steps(
        self, final_loss: torch.Tensor, outputs, targets: torch.Tensor, target: dict[str, object]
    ) -> torch.Tensor:
        """Mean of the losses over the decoder's steps, and over the encoder's, the other stack at its full depth.

        Args:
            final_loss: loss with both stacks at full depth.
            outputs: of both stacks, with `step_features`.
            target: arguments of the base model besides the source.
        """
        config = self.config

        def losses(states: torch.Tensor) -> torch.Tensor:
            logits = of_tokens(self.lm_head, states, targets != NO_TARGET)
            return smoothed_cross_entropies(logits, targets, config.label_smoothing)

        decoded = [losses(states) for states in outputs.step_features]
        decoder_loss = objective_loss(config, decoded, outputs.halting_distribution)
        if outputs.encoder_step_features is None:
            objective = f"depth_objective={config.depth_objective!r}"
            raise ValueError(
                f"`encoder_outputs` lacks the states of all steps, which {objective} trains: "
                "call the encoder with output_steps=True, or pass the source"
            )
        encoded, distribution = [], outputs.encoder_halting_distribution
        for states in outputs.encoder_step_features[:-1]:
            source = BaseModelOutput(last_hidden_state=states)
            states = self.model(encoder_outputs=source, max_depth=len(decoded), **target).last_hidden_state
            encoded.append(mean_over_labelled(losses(states), targets))
        encoded.append(final_loss)
        if distribution is not None:
            # of a token drawn at random, for the whole batch
            distribution = distribution[outputs.encoder_ponder_steps >= 0].mean(0)
        encoder_loss = objective_loss(config, encoded, distribution)
        return (mean_over_labelled(decoder_loss, targets) + encoder_loss) / 2
