"""The map from states to token ids that language models share.

Shapes: E width, V token ids.
"""

import torch
from torch import nn

from ..base.pretrained import TaskHead
from ..ops.initialization import initialized_linear


class VocabularyHead:
    """Logits of token ids, by the embedding table itself if `config.tie_word_embeddings`."""

    def build_lm_head(self, config) -> None:
        if config.lm_head == "mlp":
            self.lm_head = TaskHead(config.hidden_size, config.hidden_size, config.vocab_size)
            self._tied_weights_keys = {"lm_head.output.weight": "model.embed_tokens.weight"}
        else:
            initializer = self.lm_head_initializer(config)
            self.lm_head = initialized_linear(config.hidden_size, config.vocab_size, initializer, bias=False)
            self._tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head.output if self.config.lm_head == "mlp" else self.lm_head

    def set_output_embeddings(self, value: nn.Linear) -> None:
        if self.config.lm_head == "mlp":
            self.lm_head.output = value
        else:
            self.lm_head = value

    def predict(self, states: torch.Tensor) -> torch.Tensor:
        """Final states (..., E) -> logits (..., V)."""
        return self.lm_head(states)
