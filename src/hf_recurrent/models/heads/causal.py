"""Causal language models over any base model of this package, and their hooks for `generate`.

Shapes: B sequences, S tokens, P cached tokens, E width, V token ids.
"""

import copy
from contextlib import nullcontext
from contextvars import ContextVar
from functools import lru_cache, partial, wraps
from inspect import signature

import torch
from torch import nn
from transformers import GenerationConfig, UnbatchedClassifierFreeGuidanceLogitsProcessor
from transformers.generation import GenerationMixin, GenerationMode
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import ModelOutput, TransformersKwargs
from transformers.utils.generic import can_return_tuple

from ..base.call_options import DEPTH_ARGUMENTS, RECORDS, call_options
from ..base.outputs import RecurrentOutput, base_outputs
from ..base.pretrained import errors_only
from ..config.cache_name import CACHE_NAME, OLD_NAME, with_cache_named
from ..config.exit_criteria import EXIT_ARGUMENTS
from ..config.fields import shown
from ..depth.cache import RecurrentCache, keeps_cache
from ..depth.exit_criteria import AnswerHead, ExitOptions
from ..ops.checks import Problem, check_tensor, is_id, is_nan, refuse
from ..ops.layers import of_tokens
from ..ops.losses import NO_TARGET, check_targets, fraction_of_step, num_labelled, without_padding
from ..ops.unsupported import UNSUPPORTED, supported
from .assisted import check_assistance, depth_restored
from .token_head import PredictsTokens
from .vocabulary import VocabularyHead


def next_token_targets(
    inputs: torch.Tensor | None,
    vocab_size: int,
    labels: torch.Tensor | None,
    attention_mask: torch.Tensor | None = None,
    shift_labels: torch.Tensor | None = None,
    shifted_name: str = "shift_labels",
) -> torch.Tensor | None:
    """Next-token targets of inputs (B, S) or (B, S, E): `shift_labels`, or `labels` (B, S) shifted by one.

    Masked padding has no target and is none. Targets are checked before the model runs, so that an error leaves its
    cache unchanged. `shifted_name` is that of `shift_labels` in messages.

    Raises:
        ValueError: labels of another type or shape, or ids out of range.
    """
    targets, name = (labels, "labels") if shift_labels is None else (shift_labels, shifted_name)
    # the base model rejects inputs that are none
    if targets is None or not isinstance(inputs, torch.Tensor):
        return None
    check_targets(name, targets, inputs, vocab_size, "token ids")
    if shift_labels is None:
        targets = without_padding(targets, attention_mask)
        targets = nn.functional.pad(targets[:, 1:], (0, 1), value=NO_TARGET)
    # padding predicts nothing, either
    return without_padding(targets, attention_mask)


@lru_cache
def forward_arguments(model_class: type) -> frozenset[str]:
    """Names of arguments that a model's `forward` takes, or refuses by name."""
    return frozenset((*signature(model_class.forward).parameters, *TransformersKwargs.__optional_keys__, *UNSUPPORTED))


def steps_of_new_tokens(
    generated: ModelOutput,
    calls: list[torch.Tensor],
    end: int | list[int] | None,
    pad: int | None,
    num_new: int | None = None,
) -> torch.Tensor | None:
    """Steps (N, T) of the positions that predict T new tokens, -1 after a sequence's end; None if they are not known.

    Args:
        generated: output of `generate`.
        calls: executed steps (R, n) of the n positions of each forward pass that predict new tokens, of sequences or of
            their beams; there may be more than new tokens, where other processes still write.
        end: the id or ids that end a sequence.
        pad: the id that stands after what another criterion has ended; None: there is no other one.
        num_new: T; None if it is that of `calls`.
    """
    if any(len(each) != len(calls[0]) for each in calls):
        return None
    steps = torch.cat(calls, dim=1) if calls else torch.empty(0, 0)
    beams = generated.get("beam_indices")
    if beams is not None:
        steps = steps[:, : beams.shape[1]] if steps.shape[1] >= beams.shape[1] else None
        return None if steps is None else steps.gather(0, beams.clamp_min(0)).masked_fill(beams < 0, -1)
    if len(steps) != len(generated.sequences):
        return None
    steps = steps[:, :num_new]
    new = generated.sequences[:, generated.sequences.shape[1] - steps.shape[1] :]
    ids = torch.tensor([] if end is None else end, device=new.device, dtype=new.dtype).flatten()
    ends = torch.isin(new, ids).long()
    over = ends.cumsum(1) - ends > 0
    if pad is not None and pad not in ids:
        over |= (new == pad).flip(1).cumprod(1).flip(1).bool()
    return steps.masked_fill(over, -1)


def without_counted(arguments: dict, ids: torch.Tensor) -> dict:
    """Arguments without `position_ids` of whole texts (B, S) that are counted by `attention_mask`, as models count.

    A model of transformers passes them to its assistant.
    """
    positions, mask = arguments.get("position_ids"), arguments.get("attention_mask")
    mask = torch.ones_like(ids) if mask is None else mask
    if not all(isinstance(each, torch.Tensor) and each.dim() == 2 for each in (positions, mask)):
        return arguments
    if positions.shape not in (mask.shape, (1, mask.shape[1])):
        return arguments
    if bool(((positions != mask.cumsum(-1) - 1) & mask.bool()).any()):
        return arguments
    return {name: value for name, value in arguments.items() if name != "position_ids"}


def without_leading_padding(ids: torch.Tensor, pad: int | None) -> torch.Tensor:
    """A mask (B, S) of all tokens but the padding before them; one that is generated may be called as padding is."""
    return torch.ones_like(ids) if pad is None else ((ids != pad).cumsum(-1) > 0).long()


def check_unread(name: str, ids: torch.Tensor, cache: object, mask: object) -> None:
    """Raise a ValueError unless prompts (B, S) go on after what a cache holds of them, or are all new by their mask."""
    length = cache.get_seq_length() if isinstance(cache, RecurrentCache) else 0
    all_new = isinstance(mask, torch.Tensor) and mask.dim() == 2 and mask.shape[1] != ids.shape[1]
    if 0 < ids.shape[1] <= length and not all_new:
        raise ValueError(
            f"`{name}` has {ids.shape[1]} tokens but `past_key_values` holds {length} already: pass the whole text, to "
            "at least one token after those, or the new tokens and `attention_mask` of all columns"
        )


def check_kept(logits_to_keep: int | torch.Tensor, labelled: bool) -> None:
    """Raise a ValueError unless `logits_to_keep` is a number of tokens, or the indices (n,) of some; with labels, 0."""
    whole = isinstance(logits_to_keep, int) and not isinstance(logits_to_keep, bool)
    if not whole or logits_to_keep < 0:
        meaning = "a whole number, 0 for all tokens, or a tensor (n,) of torch.long with their indices"
        check_tensor("logits_to_keep", logits_to_keep, is_id, (1,), meaning)
    if labelled and not (whole and logits_to_keep == 0):
        raise ValueError(
            f"logits_to_keep is {shown(logits_to_keep)}: labels need the logits of all tokens, leave it at 0"
        )


def kept_states(states: torch.Tensor, logits_to_keep: int | torch.Tensor) -> tuple[torch.Tensor, list[Problem]]:
    """States (B, n, E) of the tokens that logits are wanted for, from (B, S, E), and the problem of their indices.

    They are those of the last so many, of all for 0, or of an index (n,).
    """
    if isinstance(logits_to_keep, int):
        return states[:, -logits_to_keep:], []
    length, index = states.shape[1], logits_to_keep
    wrong = ((index < -length) | (index >= length)).any()

    def message() -> str:
        found = f"indices from {int(index.min())} to {int(index.max())}"
        return f"`logits_to_keep` holds {found}: the inputs have {length} tokens, numbered from 0"

    # an accelerator would not survive an index out of range until the check
    return states[:, index.clamp(-length, length - 1)], [(wrong, message)]


# of each forward pass of the present `generate`: executed steps (R, n) of the n positions that predict new tokens;
# threads may share a model
step_calls: ContextVar[list[torch.Tensor]] = ContextVar("step_calls")


class RecurrentGenerationMixin:
    """Generation with a `RecurrentCache`, which also returns executed depth steps."""

    @keeps_cache
    def generate(self, *args, **kwargs):
        """`GenerationMixin.generate`, whose output with `return_dict_in_generate=True` has one field more.

        `ponder_steps` (N, T) of N sequences and T new tokens are the executed depth steps of the position that predicts
        each new token, -1 after a sequence's end; missing where layers are not shared, and where
        `custom_generate` does not call the model once for each token.

        Raises:
            ValueError: as the model; or a prompt without a token that a given cache does not hold; or assisted decoding
                that the model does not support. That cache is then unchanged.
        """
        calls: list[torch.Tensor] = []
        config = kwargs.get("generation_config") or next(
            (value for value in args if isinstance(value, GenerationConfig)), self.generation_config
        )
        # what a given config leaves open, transformers takes from the model's
        given = {name: value for name, value in config.to_dict().items() if value is not None}
        chosen = {**self.generation_config.to_dict(), **given, **kwargs}
        num_read = None
        for name, prompt in {"inputs": args[0] if args else None, **kwargs}.items():
            if name in ("inputs", "input_ids") and prompt is not None:
                if not self.config.is_encoder_decoder:
                    if chosen.get("is_assistant") and kwargs.get("attention_mask") is None:
                        kwargs["attention_mask"] = without_leading_padding(prompt, self.config.pad_token_id)
                    check_unread(name, prompt, kwargs.get(OLD_NAME), kwargs.get("attention_mask"))
                    if "position_ids" not in self.model.model_arguments:
                        kwargs = without_counted(kwargs, prompt)
                check_assistance(self, chosen, prompt)
                num_read = prompt.shape[1]
        self.check_generation(chosen)
        token = step_calls.set(calls)
        try:
            with nullcontext() if chosen.get("assistant_early_exit") is None else depth_restored(self.config):
                generated = super().generate(*args, **with_cache_named(CACHE_NAME, kwargs))
        finally:
            step_calls.reset(token)
        if not isinstance(generated, ModelOutput):
            return generated
        if isinstance(generated.get(CACHE_NAME), RecurrentCache):
            generated[CACHE_NAME].unpin()
        if self.config.is_encoder_decoder:
            num_read = 1 if kwargs.get("decoder_input_ids") is None else None
        num_new = None if num_read is None else generated.sequences.shape[1] - num_read
        # a caller's own loop may call the model otherwise
        if chosen.get("custom_generate") is None or sum(each.shape[1] for each in calls) == num_new:
            # a model may write that token, too
            pad = chosen["pad_token_id"] if chosen.get("stop_strings") or chosen.get("stopping_criteria") else None
            steps = steps_of_new_tokens(generated, calls, chosen["eos_token_id"], pad, num_new)
            if steps is not None:
                generated["ponder_steps"] = steps
        return generated

    def check_generation(self, chosen: dict) -> None:
        """Raise a ValueError for options of a call that the architecture's own arguments do not go with."""

    @wraps(GenerationMixin.prepare_inputs_for_generation)
    def prepare_inputs_for_generation(self, *args, **kwargs) -> dict:
        """As of transformers, without its loops' own arguments, such as `tokenizer`, which its models ignore."""
        inputs = super().prepare_inputs_for_generation(*args, **kwargs)
        known = forward_arguments(type(self)).union(self.model.model_arguments)
        return {name: value for name, value in inputs.items() if name in known}

    def _update_model_kwargs_for_generation(self, outputs, model_kwargs, *args, **kwargs):
        """Record the steps of a forward pass, too; new tokens are of the last one's type."""
        steps = getattr(outputs, "ponder_steps", None)
        if steps is not None and steps.dim() == 2:
            # of guesses, logits begin with those that check the first one
            checked = "num_new_tokens" in kwargs
            steps = steps[:, -outputs.logits.shape[1] :][:, : kwargs["num_new_tokens"]] if checked else steps[:, -1:]
            # the next call of a compiled model writes its output into the same memory
            step_calls.get([]).append(steps.clone())
        cache = model_kwargs.get(CACHE_NAME)
        if isinstance(cache, RecurrentCache) and cache.is_pinned:
            cache.pin()
        types = model_kwargs.get("token_type_ids")
        updated = super()._update_model_kwargs_for_generation(outputs, model_kwargs, *args, **kwargs)
        if types is not None:
            # of several new tokens at once, transformers would repeat as many types
            num_new = updated["token_type_ids"].shape[1] - types.shape[1]
            updated["token_type_ids"] = torch.cat((types, types[:, -1:].expand(-1, num_new)), dim=-1)
        return updated

    @staticmethod
    def create_masks_for_generate(*, inputs_embeds, attention_mask, **kwargs):
        """Of a static cache the mask of the new columns (B, S), whose shape stays."""
        return None if attention_mask is None else attention_mask[:, -inputs_embeds.shape[1] :]

    def _valid_auto_compile_criteria(self, model_kwargs, generation_config):
        compiles = super()._valid_auto_compile_criteria(model_kwargs, generation_config)
        if compiles:
            model_kwargs[CACHE_NAME].pin()
        return compiles

    def _prepare_cache_for_generation(self, generation_config, model_kwargs, generation_mode, *args, **kwargs):
        """Pass `generate` an empty cache of this model, because it would create a `DynamicCache`."""
        if model_kwargs.get("inputs_embeds") is not None and not self.config.is_encoder_decoder:
            self.check_reads_embeddings()
        if generation_config.use_cache is False and model_kwargs.get(CACHE_NAME) is not None:
            # each pass would read all tokens again, after what the cache holds of them
            raise ValueError(
                "use_cache is False and `past_key_values` is given: without a cache each pass reads the whole text; "
                "leave one of them out"
            )
        if generation_config.use_cache is not False and model_kwargs.get(CACHE_NAME) is None:
            kind, grows = generation_config.cache_implementation, self.config.capabilities.growing_cache
            is_static = kind == "static" and not grows
            if kind not in (None, "dynamic") and not is_static:
                own = "grows with the text; for one of constant size use an architecture such as tlb, and"
                if not grows:
                    own = "is of constant size for any length of the text; pass 'static', or"
                raise ValueError(
                    f"cache_implementation is {kind!r}: this model caches more than keys and values and creates its "
                    f"own cache, which {own} leave it unset"
                )
            # transformers rejects an implementation beside a cache
            generation_config.cache_implementation = None
            cache = model_kwargs[CACHE_NAME] = self.model.new_cache(model_kwargs.get("max_depth"))
            cache.is_static = is_static
        takes_back = generation_config.is_assistant or generation_mode is GenerationMode.ASSISTED_GENERATION
        if takes_back and isinstance(model_kwargs.get(CACHE_NAME), RecurrentCache):
            model_kwargs[CACHE_NAME].keep_for_crops()
        return super()._prepare_cache_for_generation(generation_config, model_kwargs, generation_mode, *args, **kwargs)

    def check_reads_embeddings(self) -> None:
        """Raise a ValueError unless the model can have a cache, with which alone transformers reads embeddings."""
        try:
            self.model.check_cache(self.model.new_cache(), None)
        except ValueError as error:
            raise ValueError(
                "`inputs_embeds` is given, which `generate` reads with a cache whatever use_cache is, but this model "
                "can have none: pass `input_ids` and use_cache=False"
            ) from error

    def _prepare_generation_config(self, generation_config, *args, **kwargs):
        """With the options of a model's calls that `generation_config` holds among those of the call."""
        if kwargs.get("use_cache", True) is None:
            # transformers would cache, and read all tokens again after those in the cache
            del kwargs["use_cache"]
        stored = (vars(config) for config in (self.generation_config, generation_config) if config is not None)
        options = call_options(*stored, kwargs)
        prepared, model_kwargs = super()._prepare_generation_config(generation_config, *args, **kwargs)
        for name in (*DEPTH_ARGUMENTS, *EXIT_ARGUMENTS):
            # transformers mixes them
            vars(prepared).pop(name, None)
            model_kwargs.pop(name, None)
        return prepared, model_kwargs | options

    def _get_logits_processor(self, *args, **kwargs):
        """As of transformers, but a pass without the prompt, by which one is guided, takes the call's options, too."""
        processors = super()._get_logits_processor(*args, **kwargs)
        options = call_options(kwargs.get("model_kwargs") or {})
        # one of the caller's own may serve other calls
        given = {id(each) for each in kwargs.get("logits_processor") or ()}
        for each in processors:
            if isinstance(each, UnbatchedClassifierFreeGuidanceLogitsProcessor) and id(each) not in given:
                each.model = partial(each.model, **options)
        return processors

    def _get_candidate_generator(self, generation_config, *args, **kwargs):
        """One whose assistant takes its own steps; of a model that guesses with few of its own, so many of them."""
        generator = super()._get_candidate_generator(generation_config, *args, **kwargs)
        # transformers warns of how it calls the assistant itself
        generator.get_candidates = errors_only()(generator.get_candidates)
        if generation_config.assistant_early_exit is not None:
            # transformers sets the depth of the config, which a decoder and a call with `max_depth` do not read
            generator.assistant_kwargs["max_depth"] = generation_config.assistant_early_exit
        elif generation_config.prompt_lookup_num_tokens is None:
            # another model may halt in no such way
            for name in (*DEPTH_ARGUMENTS, *EXIT_ARGUMENTS):
                generator.assistant_kwargs.pop(name, None)
        return generator

    def init_continuous_batching(self, *args, **kwargs):
        raise ValueError(
            "continuous batching caches keys and values once for each layer, but depth-recurrent and chunk-recurrent "
            "models need more: call generate() on a batch padded on the left"
        )


class ForCausalLM(RecurrentGenerationMixin, VocabularyHead, PredictsTokens):
    """Forward pass and head of a causal language model; an architecture adds `base_model_class` and `GenerationMixin`.

    A config that is not causal is copied and changed: each token then halts by itself, decided by its own state and
    those of the tokens before.
    """

    base_model_class: type

    def __init_subclass__(cls, **kwargs):
        """Enter a class where Trainer looks for those whose labels it has to shift for label smoothing.

        Code of a checkpoint has nobody else to do it, nor have classes derived by a user or by FSDP2.
        """
        super().__init_subclass__(**kwargs)
        # in place of a model type, which classes of different origin share
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[cls.__name__] = cls.__name__

    def __init__(self, config):
        if not config.is_causal:
            config = copy.deepcopy(config)
            config.is_causal = True
        super().__init__(config)
        self.model = self.base_model_class(config)
        self.build_lm_head(config)
        self.build_probe(config, config.hidden_size)
        self.post_init()

    @keeps_cache
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
        max_depth: int | None = None,
        halting_threshold: float | None = None,
        exit_criterion: str | None = None,
        exit_threshold: float | None = None,
        exit_patience: int | None = None,
        min_depth: int | None = None,
        detach: bool = False,
        start_of_document: torch.BoolTensor | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs,
    ) -> RecurrentOutput:
        """Predict the token after each. Arguments are those of the base model, and:

        Args:
            labels: (B, S) ids aligned with the inputs, -100 for tokens without a target.
            logits_to_keep: how many of the last tokens to give logits for, 0 for all, or (n,) their indices.
            num_items_in_batch: targets of all accumulated batches, from `Trainer`: `loss` is then this batch's part.
            kwargs: arguments of the architecture's own, and `shift_labels`, labels of the token after each, which
                override `labels`; a sequence that is read in pieces needs them for the last token of a piece.

        Raises:
            ValueError: as the base model; or labels of another shape or out of range, or NaN logits.
        """
        recorded = (output_attentions, output_hidden_states, output_halting, output_gates)
        inputs = input_ids if inputs_embeds is None else inputs_embeds
        model_kwargs, shift_labels = self.check_arguments(kwargs, labels, logits_to_keep)
        targets = next_token_targets(inputs, self.config.vocab_size, labels, attention_mask, shift_labels)
        outputs = self.model(
            input_ids,
            attention_mask,
            token_type_ids,
            inputs_embeds=inputs_embeds,
            past_key_values=past_key_values,
            use_cache=use_cache,
            **dict(zip(RECORDS, recorded, strict=True)),
            max_depth=max_depth,
            halting_threshold=halting_threshold,
            **ExitOptions(exit_criterion, exit_threshold, exit_patience, min_depth).named(),
            answer_head=self.answer_head(),
            detach=detach,
            start_of_document=start_of_document,
            pooling=False,
            return_dict=True,
            **model_kwargs,
            **(self.loss_options() if targets is not None else {}),
        )
        states, problems = kept_states(outputs.last_hidden_state, logits_to_keep)
        keeps_all = isinstance(logits_to_keep, int) and logits_to_keep == 0
        logits = of_tokens(self.predict, states, attention_mask if keeps_all else None)
        refuse(*problems, is_nan("the logits are", logits))
        loss = self.token_loss(logits, outputs, targets, attention_mask)
        counted = labels[:, 1:] if shift_labels is None and labels is not None else shift_labels
        fraction = fraction_of_step(counted, num_items_in_batch)
        losses = self.losses(loss, outputs, num_labelled(targets), fraction)
        return RecurrentOutput(logits=logits, **losses, **base_outputs(outputs))

    def answer_head(self) -> AnswerHead:
        """The head as exit criteria use it."""
        return AnswerHead(self.predict, getattr(self, "exit_probe", None))

    def check_arguments(
        self, kwargs: dict, labels, logits_to_keep: int | torch.Tensor
    ) -> tuple[dict, torch.Tensor | None]:
        """Check arguments beyond the signature -> those of the architecture's own, and `shift_labels`.

        The latter are not in the signature, because Trainer requires every parameter whose name contains "label".
        """
        kwargs = supported(kwargs, self.model.model_arguments)
        unknown = sorted(kwargs.keys() - {"shift_labels", *self.model.model_arguments})
        if unknown:
            raise TypeError(f"{type(self).__name__}.forward() got an unexpected keyword argument {unknown[0]!r}")
        shift_labels = kwargs.get("shift_labels")
        check_kept(logits_to_keep, labels is not None or shift_labels is not None)
        return {name: value for name, value in kwargs.items() if name != "shift_labels"}, shift_labels
