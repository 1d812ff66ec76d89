"""Token classifiers, such as those of named entities, over any base model of this package.

Shapes: B sequences, S tokens, E width, C labels.
"""

import torch

from ..base.pretrained import task_head
from ..config.base import require
from ..ops.losses import check_targets
from .token_head import TokenHead


class ForTokenClassification(TokenHead):
    """Forward pass and head of a token classifier; an architecture adds `base_model_class`.

    `config.num_labels` are its classes, and `config.classifier` its last layers, as of a sequence classifier. A model
    whose tokens see those before them only classifies each by its left context.
    """

    def __init__(self, config):
        kind = config.problem_type
        require(
            kind in (None, "single_label_classification"),
            "problem_type",
            kind,
            f"{type(self).__name__} chooses one label for each token; leave it None",
        )
        # transformers derives it from `id2label`
        require(
            config.num_labels > 1,
            "num_labels",
            config.num_labels,
            f"{type(self).__name__} has nothing to choose between; pass the number of labels, at least 2",
        )
        super().__init__(config)
        self.classifier = task_head(config, config.hidden_size, config.num_labels)
        self.build_probe(config, config.hidden_size)
        self.post_init()

    def predict(self, states: torch.Tensor) -> torch.Tensor:
        """Final states (..., E) -> logits (..., C)."""
        return self.classifier(states)

    def check_labels(self, labels: torch.Tensor, inputs: torch.Tensor) -> None:
        number = self.config.num_labels
        check_targets("labels", labels, inputs, number, f"classes from 0 to {number - 1}", field="num_labels")
