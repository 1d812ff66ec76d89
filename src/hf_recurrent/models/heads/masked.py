"""Masked language models over any base model of this package whose tokens see both sides.

Shapes: B sequences, S tokens, E width, V token ids.
"""

import torch

from ..config.base import require
from ..ops.losses import check_targets
from .token_head import TokenHead
from .vocabulary import VocabularyHead


class ForMaskedLM(VocabularyHead, TokenHead):
    """Forward pass and head of a masked language model; an architecture adds `base_model_class`.

    `config.lm_head` and `config.tie_word_embeddings` are as of a causal language model.
    """

    def __init__(self, config):
        require(
            not config.is_causal,
            "is_causal",
            config.is_causal,
            "tokens of this model see those before them only, but a masked token is predicted from both sides; "
            "set it to False, or use AutoModelForCausalLM",
        )
        super().__init__(config)
        self.build_lm_head(config)
        self.build_probe(config, config.hidden_size)
        self.post_init()

    def check_labels(self, labels: torch.Tensor, inputs: torch.Tensor) -> None:
        check_targets("labels", labels, inputs, self.config.vocab_size, "token ids")
