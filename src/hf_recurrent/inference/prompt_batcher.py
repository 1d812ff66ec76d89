"""Many prompts through a causal language model, with the batch of every decoding step full.

Shapes: S tokens of a prompt, T new ones, B prompts under way, V token ids.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import torch
from transformers import GenerationConfig
from transformers.generation import GenerationMode, LogitsProcessorList, logits_process

from ..models.common.cache import RecurrentCache
from ..models.common.exit_criteria import EXIT_ARGUMENTS
from ..models.common.fields import shown
from .decoding_pool import DecodingPool, Text
from .depth_batcher import DEPTH_ARGUMENTS, DepthBatcher, is_recurrent
from .examples import read_example
from .modes import inference_mode, is_divided
from .text_pool import TextPool

# reading few prompts takes hardly less time than reading some: it pays from this share of the places on
MIN_SHARE_TO_ADMIT = 1 / 4
# they read the logits of one token, whatever is beside it in the batch and before it
TAKEN_PROCESSORS = (
    logits_process.TemperatureLogitsWarper,
    logits_process.TopKLogitsWarper,
    logits_process.TopPLogitsWarper,
    logits_process.MinPLogitsWarper,
    logits_process.TypicalLogitsWarper,
    logits_process.EpsilonLogitsWarper,
    logits_process.EtaLogitsWarper,
    logits_process.SuppressTokensLogitsProcessor,
)
# fields of generation configs that neither a token nor their number says
REFUSED = ("stop_strings", "max_time", "guidance_scale", "watermarking_config")


class Generated(NamedTuple):
    """What was generated after a prompt.

    Attributes:
        token_ids: (T,) new tokens, the one that ends the text included.
        ponder_steps: (T,) executed depth steps of the position that predicts each, as `generate` returns them; None of
            a model without.
    """

    token_ids: torch.Tensor
    ponder_steps: torch.Tensor | None


class PromptBatcher:
    """Generates texts after prompts, and gives the places of texts that end to the next prompts.

    A plain batch of `generate` waits for its longest text and, at each position, for its deepest token. Here texts that
    end leave the batch and its cache. Where tokens halt one by one, a text whose token has halted goes on with the next
    one at once: each call of the shared block takes one step of the latest token of every text. Results equal those of
    `generate` for each prompt alone, in the order of the prompts; sampled texts have the same distribution, and depend
    on the prompts beside them.

        batcher = PromptBatcher(model, max_new_tokens=64)
        for text in batcher({"input_ids": ids} for ids in tokenizer(prompts)["input_ids"]):
            print(tokenizer.decode(text.token_ids))

    Args:
        model: a causal language model of this package.
        batch_size: the most texts under way.
        max_new_tokens: the most tokens after each prompt; None: as the prompt or `generation_config` says.
        do_sample: whether to draw tokens, instead of taking the most probable.
        options: `max_steps`, `halting_threshold`, `exit_criterion`, `exit_threshold`, `exit_patience`, `min_steps` of
            the forward pass; fields of `transformers.GenerationConfig` on the logits of single tokens, such as
            `temperature`, `top_k` and `top_p`, and `eos_token_id`.

    Raises:
        ValueError: a number that is not whole or below 1, an option that is not supported, or a model that cannot read
            a text in pieces.
        TypeError: an unknown option.
    """

    def __init__(
        self,
        model: Any,
        batch_size: int = 16,
        max_new_tokens: int | None = None,
        do_sample: bool = False,
        **options: Any,
    ):
        if not is_recurrent(model) or not hasattr(model, "predict") or model.config.is_encoder_decoder:
            raise ValueError(f"model is a {type(model).__name__}: pass a causal language model of this package")
        self.model, self.batch_size, self.do_sample = model, checked("batch_size", batch_size), do_sample
        if max_new_tokens is not None:
            options["max_new_tokens"] = checked("max_new_tokens", max_new_tokens)
        config, found = model._prepare_generation_config(None, do_sample=do_sample, **options)
        own = (*DEPTH_ARGUMENTS, *EXIT_ARGUMENTS)
        for name in (found.keys() & options.keys()) - {*own}:
            raise TypeError(f"PromptBatcher() got an unexpected option {name!r}")
        self.options = {name: found[name] for name in own if name in found}
        self.processors = token_processors(model, config)
        self.max_new_tokens = config.max_new_tokens
        ends = [] if config.eos_token_id is None else config.eos_token_id
        self.ends = frozenset(ends if isinstance(ends, (list, tuple)) else [ends])
        self.depth_batcher = DepthBatcher(model, **self.options)
        self.new_cache()

    def new_cache(self) -> RecurrentCache:
        """An empty cache.

        Raises:
            ValueError: the model cannot read a text in pieces.
        """
        base, max_steps = self.model.model, self.options.get("max_steps")
        cache = base.new_cache(max_steps)
        base.check_cache(cache, max_steps)
        return cache

    def __call__(self, prompts: Iterable[Mapping[str, Any]]) -> Iterator[Generated]:
        """The text after each prompt.

        Args:
            prompts: mappings with `input_ids` (S,) and perhaps `attention_mask`, whose tokens alone are read,
                `token_type_ids`, and `max_new_tokens`.

        Raises:
            ValueError: a prompt without tokens, with fields of different lengths, or without a number of new tokens;
                or as the model.
        """
        pool = self.new_pool()
        waiting = (self.text(fields, number) for number, fields in enumerate(prompts))
        ended: dict[int, Generated] = {}
        next_number = 0
        while True:
            free = self.batch_size - len(pool.texts)
            entering = list(islice(waiting, free)) if free >= MIN_SHARE_TO_ADMIT * self.batch_size else []
            if not entering and not pool.texts:
                return
            with inference_mode(self.model):
                if entering:
                    pool.admit(entering)
                while not (leaving := pool.leave()):
                    pool.step()
            ended |= {text.number: generated(text) for text in leaving}
            while next_number in ended:
                yield ended.pop(next_number)
                next_number += 1

    def new_pool(self) -> DecodingPool | TextPool:
        """A pool without texts; one whose tokens wait for each other if the model needs that."""
        with inference_mode(self.model):
            call = self.depth_batcher.call()
            if self.model.model.can_decode(call) and not is_divided(self.model):
                return TextPool(self.model, call, self.choose, self.ends)
        return DecodingPool(self.model, self.new_cache, self.choose, self.ends, self.options)

    def text(self, fields: Mapping[str, Any], number: int) -> Text:
        """A text that waits."""
        prompt = read_example(fields, number)
        most = fields.get("max_new_tokens")
        most = self.max_new_tokens if most is None else most
        if most is None:
            raise ValueError(
                f"`max_new_tokens` of example {number} is not given, nor in the checkpoint's generation_config: pass "
                "it to PromptBatcher, or with each prompt"
            )
        return Text(number, prompt, checked(f"`max_new_tokens` of example {number}", most))

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits (B, V) -> ids (B,) of the next tokens."""
        scores = self.processors(None, logits.float())
        if self.do_sample:
            return torch.multinomial(scores.softmax(-1), 1).squeeze(-1)
        return scores.argmax(-1)


def generated(text: Text) -> Generated:
    """The result of a text that has ended."""
    steps = torch.tensor(text.ponder_steps) if text.ponder_steps else None
    return Generated(torch.tensor(text.token_ids), steps)


def checked(name: str, value: object) -> int:
    """A whole number, at least 1; a ValueError for others."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {shown(value)}: pass a whole number, 1 or more")
    return value


def token_processors(model: Any, config: GenerationConfig) -> LogitsProcessorList:
    """The processors of logits that a generation config asks for.

    Raises:
        ValueError: it asks for more than tokens one by one, each by its own logits.
    """
    mode = config.get_generation_mode()
    if mode not in (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE):
        raise ValueError(
            f"the generation config asks for {mode.value}: PromptBatcher takes tokens one by one, greedily or sampled"
        )
    for name in REFUSED:
        if getattr(config, name, None) is not None:
            raise ValueError(
                f"{name} is {shown(getattr(config, name))}: PromptBatcher has no such option, use generate()"
            )
    if config.num_return_sequences not in (None, 1):
        raise ValueError(f"num_return_sequences is {config.num_return_sequences}: pass each prompt so many times")
    # some processors know the end of a text by its tensor
    model._prepare_special_tokens(config, True, device=model.device)
    found = model._get_logits_processor(config, input_ids_seq_length=1, device=model.device)
    for processor in found:
        if not isinstance(processor, TAKEN_PROCESSORS):
            raise ValueError(
                f"the generation config asks for {type(processor).__name__}, which looks at more than the logits of "
                "one token: use generate(), or leave that option out"
            )
    return found
