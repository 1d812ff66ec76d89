"""Generation by any language model of this package: hooks for transformers' `generate`.

Shapes: B sequences, S tokens, N sequences and T new tokens that are generated.
"""

from contextvars import ContextVar
from functools import lru_cache, partial, wraps
from inspect import signature

import torch
from transformers import GenerationConfig, UnbatchedClassifierFreeGuidanceLogitsProcessor
from transformers.generation import GenerationMixin, GenerationMode
from transformers.utils import ModelOutput, TransformersKwargs

from ..base.arguments import CALL_OPTIONS, UNSUPPORTED, RecurrentKwargs, call_options
from ..base.pretrained import errors_only
from ..config.cache_name import CACHE_NAME, OLD_NAME, with_cache_named
from ..config.fields import shown
from ..depth.cache import RecurrentCache, keeps_cache
from ..ops.masks import is_flash
from .assisted import assistant_arguments, check_guessing


@lru_cache
def forward_arguments(model_class: type) -> frozenset[str]:
    """Names of arguments that a model's `forward` takes, or refuses by name."""
    names = (*signature(model_class.forward).parameters, *RecurrentKwargs.__optional_keys__, *UNSUPPORTED)
    return frozenset((*names, *TransformersKwargs.__optional_keys__))


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
    beams, sequences = generated.get("beam_indices"), generated.sequences
    if beams is not None:
        if steps.shape[1] < beams.shape[1]:
            return None
        return steps[:, : beams.shape[1]].gather(0, beams.clamp_min(0)).masked_fill(beams < 0, -1)
    if len(steps) != len(sequences):
        return None
    steps = steps[:, :num_new]
    new = sequences[:, sequences.shape[1] - steps.shape[1] :]
    ids = torch.tensor([] if end is None else end, device=new.device, dtype=new.dtype).flatten()
    ends = torch.isin(new, ids).long()
    over = ends.cumsum(1) - ends > 0
    if pad is not None and pad not in ids:
        over |= (new == pad).flip(1).cumprod(1).flip(1).bool()
    return steps.masked_fill(over, -1)


def check_unread(name: str, ids: torch.Tensor, cache: object, mask: object) -> None:
    """Raise a ValueError unless prompts (B, S) go on after what a cache holds of them, or are all new by their mask."""
    length = cache.get_seq_length() if isinstance(cache, RecurrentCache) else 0
    all_new = isinstance(mask, torch.Tensor) and mask.dim() == 2 and mask.shape[1] != ids.shape[1]
    if 0 < ids.shape[1] <= length and not all_new:
        raise ValueError(
            f"`{name}` has {ids.shape[1]} tokens but `past_key_values` holds {length} already: pass the whole text, to "
            "at least one token after those, or the new tokens and `attention_mask` of all columns"
        )


# options of `generate` by which tokens are guessed first, and those that are wrong taken back
ASSISTED = ("assistant_model", "assistant_early_exit", "prompt_lookup_num_tokens")
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
                    kwargs = assistant_arguments(self, kwargs, prompt, chosen)
                    check_unread(name, prompt, kwargs.get(OLD_NAME), kwargs.get("attention_mask"))
                self.check_assistance(chosen, prompt)
                num_read = prompt.shape[1]
        self.check_generation(chosen)
        token, depth = step_calls.set(calls), self.config.num_hidden_layers
        try:
            generated = super().generate(*args, **with_cache_named(CACHE_NAME, kwargs))
        finally:
            step_calls.reset(token)
            if chosen.get("assistant_early_exit") is not None:
                # transformers changes it while a model guesses with few steps
                self.config.num_hidden_layers = depth
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

    def check_assistance(self, chosen: dict, prompts: torch.Tensor) -> None:
        """Check the `chosen` options of a call of `generate` for assisted decoding.

        Raises:
            ValueError: the model or the assistant cannot take tokens back, there are several prompts, or an option is
                none.
        """
        for name in ASSISTED:
            value = chosen.get(name)
            if value is None:
                continue
            said = f"{name} is {type(value).__name__ if isinstance(value, torch.nn.Module) else shown(value)}"
            if self._is_stateful:
                raise ValueError(
                    f"{said}, but assisted generation is not supported with stateful models: guessed tokens that are "
                    "wrong have to be taken back, which a cache of constant size cannot; leave it out, or use an "
                    "architecture whose cache grows, such as gut"
                )
            if prompts.dim() == 2 and prompts.shape[0] > 1:
                raise ValueError(
                    f"{said}, but there are {prompts.shape[0]} prompts: pass them one by one, or leave it out"
                )
            check_guessing(self, name, value, said, chosen.get("max_depth"))

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

    def _validate_model_kwargs(self, model_kwargs: dict) -> None:
        """Arguments of `RecurrentKwargs` are none that transformers could know."""
        known = RecurrentKwargs.__optional_keys__
        super()._validate_model_kwargs({name: value for name, value in model_kwargs.items() if name not in known})

    @staticmethod
    def create_masks_for_generate(*, inputs_embeds, attention_mask, past_key_values, **kwargs):
        """For a graph that goes on from a cache the mask of the new columns (B, S), whose shape stays."""
        number = inputs_embeds.shape[1] if past_key_values.pinned_length else 0
        return None if attention_mask is None else attention_mask[:, -number:]

    def _valid_auto_compile_criteria(self, model_kwargs, generation_config):
        compiles = super()._valid_auto_compile_criteria(model_kwargs, generation_config)
        # pieces of a prompt fill what graphs write into
        compiles = compiles and not model_kwargs[CACHE_NAME].is_pinned
        if compiles:
            model_kwargs[CACHE_NAME].pin()
        return compiles

    def _prepare_cache_for_generation(self, generation_config, model_kwargs, generation_mode, *sizes):
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
            if kind not in (None, "dynamic", "static"):
                own = "grows with the text" if grows else "is of constant size for any length of the text"
                raise ValueError(
                    f"cache_implementation is {kind!r}: this model caches more than keys and values and creates its "
                    f"own cache, which {own}; pass 'static', or leave it unset"
                )
            # transformers rejects an implementation beside a cache
            generation_config.cache_implementation = None
            steps, is_static = model_kwargs.get("max_depth"), kind == "static"
            if is_static and grows:
                longest = max(sizes[-1], getattr(generation_config, "max_cache_len", None) or 0)
                # texts of similar lengths share a graph
                cache = self.model.new_static_cache(longest + -longest % 64, steps)
            else:
                cache = self.model.new_cache(steps)
            model_kwargs[CACHE_NAME] = cache
            # masks of FlashAttention tell no columns
            cache.is_compileable = is_static and not (grows and is_flash(self.config))
        takes_back = generation_config.is_assistant or generation_mode is GenerationMode.ASSISTED_GENERATION
        if takes_back and isinstance(model_kwargs.get(CACHE_NAME), RecurrentCache):
            model_kwargs[CACHE_NAME].keep_for_crops()
        return super()._prepare_cache_for_generation(generation_config, model_kwargs, generation_mode, *sizes)

    def check_reads_embeddings(self) -> None:
        """Raise a ValueError unless the model can have a cache, with which alone transformers reads embeddings."""
        try:
            self.model.new_cache().check_model(self.model, None)
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
        for name in CALL_OPTIONS:
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
            for name in CALL_OPTIONS:
                generator.assistant_kwargs.pop(name, None)
        return generator

    def init_continuous_batching(self, *args, **kwargs):
        raise ValueError(
            "continuous batching caches keys and values once for each layer, but depth-recurrent and chunk-recurrent "
            "models need more: call generate() on a batch padded on the left"
        )
