"""The map from states to token ids that language models share, and masked language models.

Shapes: E width, V token ids.
"""

import torch
from torch import nn

from ..ops.initialization import initialized_linear
from .head import Head, mlp
from .tokens import ForTokenClassification


class VocabularyHead(Head):
    """Logits of token ids, by the embedding table itself if `config.tie_word_embeddings`."""

    def build_head(self, config) -> None:
        if config.lm_head == "mlp":
            self.lm_head = mlp(config.hidden_size, config.hidden_size, config.vocab_size)
        else:
            initializer = self.lm_head_initializer(config)
            self.lm_head = initialized_linear(config.hidden_size, config.vocab_size, initializer, bias=False)
        layer = "lm_head.output" if config.lm_head == "mlp" else "lm_head"
        self._tied_weights_keys = {f"{layer}.weight": "model.embed_tokens.weight"}

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head.output if self.config.lm_head == "mlp" else self.lm_head

    def set_output_embeddings(self, value: nn.Linear) -> None:
        if self.config.lm_head == "mlp":
            self.lm_head.output = value
        else:
            self.lm_head = value

    def predict(self, states: torch.Tensor, steps: int | torch.Tensor | None = None) -> torch.Tensor:
        """Final states (..., E) -> logits (..., V)."""
        return self.lm_head(states)


class ForMaskedLM(VocabularyHead, ForTokenClassification):
    """A masked language model, whose tokens see both sides: their classes are token ids."""

    label_field = "vocab_size"
    summary = "with a masked language model's head, which predicts hidden tokens from both sides."
    example = (
        "",
        """
>>> output = model(torch.tensor([[2, 5, 1, 3]]))
>>> output.logits.shape == (1, 4, model.config.vocab_size)
True
""",
    )

    def check_config(self, config) -> None:
        config.require(
            not config.is_causal,
            "is_causal",
            "tokens of this model see those before them only, but a masked token is predicted from both sides; "
            "set it to False, or use AutoModelForCausalLM",
        )
