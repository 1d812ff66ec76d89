"""Encoder-decoder models over any two stacks of this package, and their hooks for `generate`.

Shapes: B sequences, S source tokens, T target tokens, P cached target tokens, E width, V token ids.
"""

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import ModelOutput
from transformers.utils.generic import can_return_tuple

from ..base.arguments import supported
from ..base.outputs import RecurrentSeq2SeqOutput, base_outputs
from ..config.cache_name import CACHE_NAME
from ..config.fields import shown
from ..depth.cache import keeps_cache
from ..depth.exit_criteria import AnswerHead, ExitOptions
from ..depth.objectives import objective_loss
from ..ops.checks import check_ids, is_nan, refuse
from ..ops.graphs import in_graph
from ..ops.initialization import embedding_like, initialized_linear
from ..ops.layers import at_least_float32, of_tokens
from ..ops.losses import NO_TARGET, fraction_of_step, num_labelled
from ..ops.sharding import is_sharded
from .causal import check_kept, kept_states, next_token_targets
from .generation import RecurrentGenerationMixin


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


def as_model_output(encoder_outputs: ModelOutput | tuple | None) -> ModelOutput | None:
    """Encoder outputs as a record; the first of a tuple are the last states.

    Raises:
        ValueError: they are neither, or without states.
    """
    if encoder_outputs is None:
        return None
    if isinstance(encoder_outputs, tuple) and encoder_outputs:
        encoder_outputs = BaseModelOutput(last_hidden_state=encoder_outputs[0])
    if not isinstance(encoder_outputs, ModelOutput) or encoder_outputs.get("last_hidden_state") is None:
        raise ValueError(
            f"`encoder_outputs` is {shown(encoder_outputs)}: pass what the stack `encoder` returned, or a tuple that "
            "begins with its final states"
        )
    return encoder_outputs


def has_source(cache: Cache | None) -> bool:
    """Whether a decoder's cache holds the keys and values of a source."""
    return getattr(cache, "source", None) is not None


class EncoderDecoder:
    """Two stacks, `encoder` and `decoder`, with `config.is_encoder_decoder`; otherwise the one stack of the base class.

    The stacks' own arguments include `encoder_hidden_states`.
    """

    def get_input_embeddings(self) -> nn.Embedding:
        return self.encoder.embed_tokens if self.config.is_encoder_decoder else super().get_input_embeddings()

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        if not self.config.is_encoder_decoder:
            super().set_input_embeddings(value)
            return
        self.encoder.embed_tokens = value
        if self.config.tie_word_embeddings:
            self.decoder.embed_tokens = value

    def resize_token_embeddings(self, *args, **kwargs) -> nn.Embedding:
        embedding = super().resize_token_embeddings(*args, **kwargs)
        self.resize_decoder(*args, **kwargs)
        return embedding

    def resize_decoder(self, *args, **kwargs) -> None:
        """Resize the decoder's embeddings like the encoder's."""
        if not self.config.is_encoder_decoder:
            return
        if not self.config.tie_word_embeddings:
            self.decoder.resize_token_embeddings(*args, **kwargs)
        for stack in (self.encoder, self.decoder):
            stack.config.vocab_size = self.config.vocab_size

    def new_cache(self, max_depth: int | None = None) -> Cache:
        """An empty cache for `past_key_values`, of the decoder if there are two stacks."""
        return self.decoder.new_cache(max_depth) if self.config.is_encoder_decoder else super().new_cache(max_depth)

    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        *args,
        **kwargs,
    ):
        """Run one stack, or both; see `forward_stacks`."""
        if self.config.is_encoder_decoder:
            return self.forward_stacks(input_ids, attention_mask, *args, **kwargs)
        return super().forward(input_ids, attention_mask, *args, **kwargs)

    @keeps_cache
    @can_return_tuple
    def forward_stacks(
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
        max_depth: int | None = None,
        **options,
    ) -> RecurrentSeq2SeqOutput:
        """Encode a source and decode a target.

        Args:
            input_ids: (B, S), or pass `inputs_embeds` (B, S, E), or `encoder_outputs` of an earlier call.
            attention_mask: (B, S), 1 at source tokens; padding may be on either side.
            decoder_input_ids: (B, T), or pass `decoder_inputs_embeds`; with `past_key_values` those that are new.
            decoder_attention_mask: (B, T), or (B, P + T) with a cache.
            encoder_outputs: of the stack `encoder`. With labels, they need `output_router_statistics=True`: otherwise
                the router losses are those of the decoder only.
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
        options = supported(options)
        encoder_outputs = as_model_output(encoder_outputs)
        if encoder_outputs is None and input_ids is None and inputs_embeds is None and has_source(past_key_values):
            encoder_outputs = BaseModelOutput()
        encoder_steps, decoder_steps = self.stack_steps(max_depth)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids,
                attention_mask,
                inputs_embeds=inputs_embeds,
                max_depth=encoder_steps,
                pooling=False,
                return_dict=True,
                **options,
            )
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            raise ValueError(
                "neither `decoder_input_ids` nor `decoder_inputs_embeds` was passed: pass the decoder's inputs, pass "
                "`labels` to a model with a head, or call generate()"
            )
        decoded = self.decoder(
            decoder_input_ids,
            decoder_attention_mask,
            inputs_embeds=decoder_inputs_embeds,
            past_key_values=past_key_values,
            use_cache=use_cache,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=attention_mask,
            max_depth=decoder_steps,
            pooling=False,
            return_dict=True,
            **options,
        )
        return self.merge_outputs(encoder_outputs, decoded)

    def stack_steps(self, max_depth: int | None) -> tuple[int | None, int | None]:
        """`max_depth` of the encoder and of the decoder."""
        return max_depth, max_depth

    def merge_outputs(self, source: ModelOutput, target: ModelOutput) -> RecurrentSeq2SeqOutput:
        """One output of both stacks; fields of the target's halting have no prefix."""
        statistics = [each.get("router_statistics") for each in (source, target)]
        return RecurrentSeq2SeqOutput(
            last_hidden_state=target.last_hidden_state,
            **{CACHE_NAME: getattr(target, CACHE_NAME)},
            decoder_hidden_states=target.hidden_states,
            decoder_attentions=target.attentions,
            cross_attentions=target.cross_attentions,
            ponder_cost=target.ponder_cost,
            ponder_steps=target.ponder_steps,
            halting_probabilities=target.halting_probabilities,
            attention_experts=target.attention_experts,
            cross_attention_experts=target.cross_attention_experts,
            feed_forward_experts=target.feed_forward_experts,
            step_features=target.get("step_features"),
            halting_distribution=target.get("halting_distribution"),
            encoder_last_hidden_state=source.last_hidden_state,
            **{f"encoder_{name}": source.get(name) for name in ENCODER_FIELDS},
            router_statistics=None if statistics[1] is None else (*(statistics[0] or ()), *statistics[1]),
        )


ENCODER_FIELDS = (
    "hidden_states",
    "attentions",
    "ponder_cost",
    "ponder_steps",
    "halting_probabilities",
    "attention_experts",
    "feed_forward_experts",
    "step_features",
    "halting_distribution",
)


class ForConditionalGeneration(RecurrentGenerationMixin):
    """Forward pass and head of an encoder-decoder model; an architecture adds `base_model_class` and
    `GenerationMixin`.
    """

    base_model_class: type
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
        self.model = self.base_model_class(config)
        self.lm_head = initialized_linear(
            config.hidden_size, config.vocab_size, embedding_like(config.initializer_range), bias=False
        )
        self._tied_weights_keys = {"lm_head.weight": "model.encoder.embed_tokens.weight"}
        self.build_probe(config, config.hidden_size)
        self.post_init()

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

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head

    def set_output_embeddings(self, value: nn.Linear) -> None:
        self.lm_head = value

    def resize_token_embeddings(self, *args, **kwargs) -> nn.Embedding:
        embedding = super().resize_token_embeddings(*args, **kwargs)
        self.model.resize_decoder(*args, **kwargs)
        return embedding

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Decoder inputs (B, T) for labels (B, T)."""
        start = self.config.decoder_start_token_id
        if start is None:
            raise ValueError(
                "config field `decoder_start_token_id` is None: set it to the id a decoder starts with, e.g. EOS"
            )
        return shifted_right(check_target_labels(labels), start, self.config.pad_token_id)

    def decoder_mask(self, labels: torch.Tensor, ids: torch.Tensor | None, from_labels: bool) -> torch.Tensor | None:
        """Attention mask of decoder inputs `ids` (B, T), passed or derived from labels; None for embeddings."""
        return None if ids is None else read_mask(labels, None if from_labels else ids, self.config.pad_token_id)

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
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        output_halting: bool = False,
        output_experts: bool = False,
        max_depth: int | None = None,
        halting_threshold: float | None = None,
        exit_criterion: str | None = None,
        exit_threshold: float | None = None,
        exit_patience: int | None = None,
        min_depth: int | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: torch.Tensor | int | None = None,
        **own_kwargs,
    ) -> RecurrentSeq2SeqOutput:
        """Predict a target. Arguments are those of the base model, and:

        Args:
            labels: (B, T) ids to predict, -100 for tokens without a target; without `decoder_input_ids` the inputs of
                the decoder are the labels shifted by one, after `config.decoder_start_token_id`.
            logits_to_keep: how many of the last target tokens to give logits for, 0 for all, or (n,) their indices.
            num_items_in_batch: labels of all accumulated batches, from `Trainer`: `loss` is then this batch's part.
            own_kwargs: no others, unless they are None and known to transformers.

        Raises:
            ValueError: as the base model; or labels of another shape, out of range, or an empty target.
        """
        for name in supported(own_kwargs):
            raise TypeError(f"{type(self).__name__}.forward() got an unexpected keyword argument {name!r}")
        check_kept(logits_to_keep, labels is not None)
        given = decoder_input_ids if decoder_inputs_embeds is None else decoder_inputs_embeds
        if labels is not None and given is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        inputs = decoder_input_ids if given is None else given
        labels = check_target_labels(labels)
        targets = next_token_targets(inputs, self.config.vocab_size, None, None, labels, shifted_name="labels")
        if targets is not None and decoder_attention_mask is None and past_key_values is None:
            decoder_attention_mask = self.decoder_mask(labels, decoder_input_ids, from_labels=given is None)
        outputs = self.model(
            input_ids,
            attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            use_cache=use_cache,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            output_halting=output_halting,
            output_experts=output_experts,
            max_depth=max_depth,
            halting_threshold=halting_threshold,
            **ExitOptions(exit_criterion, exit_threshold, exit_patience, min_depth).named(),
            answer_head=self.answer_head(),
            return_dict=True,
            **(self.loss_options() if targets is not None else {}),
        )
        states, problems = kept_states(outputs.last_hidden_state, logits_to_keep)
        keeps_all = isinstance(logits_to_keep, int) and logits_to_keep == 0
        logits = of_tokens(self.lm_head, states, decoder_attention_mask if keeps_all else None)
        refuse(*problems, is_nan("the logits are", logits))
        loss = None
        if targets is not None:
            loss = mean_over_labelled(self.token_losses(logits, targets), targets)
        if targets is not None and self.supervises_steps:
            decoder_inputs = {
                "decoder_input_ids": decoder_input_ids,
                "decoder_inputs_embeds": decoder_inputs_embeds,
                "decoder_attention_mask": decoder_attention_mask,
                "attention_mask": attention_mask,
            }
            loss = self.loss_of_steps(loss, outputs, targets, decoder_inputs)
        fraction = fraction_of_step(labels, num_items_in_batch)
        losses = self.losses(loss, outputs, num_labelled(targets), fraction)
        return RecurrentSeq2SeqOutput(logits=logits, **losses, **base_outputs(outputs))

    def answer_head(self) -> AnswerHead:
        """The head as exit criteria use it."""
        return AnswerHead(lambda states, steps: self.lm_head(states), getattr(self, "exit_probe", None))

    def token_losses(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return smoothed_cross_entropies(logits, targets, self.config.label_smoothing)

    def loss_of_steps(
        self, final_loss: torch.Tensor, outputs, targets: torch.Tensor, decoder_inputs: dict[str, torch.Tensor | None]
    ) -> torch.Tensor:
        """Mean of the losses over the decoder's steps, and over the encoder's, the other stack at its full depth.

        Args:
            final_loss: loss with both stacks at full depth.
            outputs: of both stacks, with `step_features`.
            decoder_inputs: arguments of the base model besides the source.
        """
        config = self.config

        def losses(states: torch.Tensor) -> torch.Tensor:
            return self.token_losses(of_tokens(self.lm_head, states, targets != NO_TARGET), targets)

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
            states = self.model(
                encoder_outputs=source,
                max_depth=len(decoded),
                answer_head=self.answer_head(),
                return_dict=True,
                **decoder_inputs,
            ).last_hidden_state
            encoded.append(mean_over_labelled(losses(states), targets))
        encoded.append(final_loss)
        if distribution is not None:
            # of a token drawn at random, for the whole batch
            distribution = distribution[outputs.encoder_ponder_steps >= 0].mean(0)
        encoder_loss = objective_loss(config, encoded, distribution)
        return (mean_over_labelled(decoder_loss, targets) + encoder_loss) / 2
