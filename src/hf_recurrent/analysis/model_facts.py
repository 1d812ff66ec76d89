"""Facts that statistics derive from a model's `Capabilities` and modules, and names that their tables share."""

from collections.abc import Mapping
from typing import Any

from ..models.common.classification import ForSequenceClassification
from ..models.common.exit_criteria import LEARNED, ExitOptions, resolve_exit
from ..models.common.token_classification import ForTokenClassification
from ..models.common.token_head import TokenHead

# the stack of a model that has one, and those of a model that has two
MODEL, ENCODER, DECODER = "model", "encoder", "decoder"
# in the place of a stack, and of a test split: all of them together
BOTH, ALL_TESTS = "both", "all tested splits"
# ends of the names of classes -> tags of tasks on the Hub
TASKS = {
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForMaskedLM": "fill-mask",
    "ForCausalLM": "text-generation",
    "ForConditionalGeneration": "translation",
    "ForQuestionAnswering": "question-answering",
    "ForMultipleChoice": "multiple-choice",
}
# halting strategies by which every token halts by itself in any model
TOKEN_HALTING = ("token", "act", "act_universal")


def adds_probabilities(halting: str) -> bool:
    """Whether a strategy is adaptive computation time, whose halting probabilities are unconditional and add up."""
    return halting.startswith("act")


def stopping_rule(config: Any) -> tuple[str, float | None]:
    """What stops units, and its threshold: the exit criterion or, if that is "learned", the halting strategy.

    ("none", None) for a fixed depth; a criterion may have no threshold.
    """
    capabilities = config.capabilities
    if capabilities.exit_criterion not in (None, LEARNED):
        rule = resolve_exit(config, ExitOptions())
        return rule.criterion.name, rule.threshold
    return capabilities.halting, capabilities.halting_threshold if capabilities.halts else None


def stack_depths(config: Any) -> dict[str, int]:
    """Maximum depth steps of each stack."""
    if config.capabilities.two_stacks:
        return {ENCODER: config.num_hidden_layers, DECODER: config.num_decoder_layers}
    return {MODEL: config.num_hidden_layers}


def all_stacks(stacks: Mapping[str, Any]) -> dict[str, float]:
    """The work of all `stacks` of a row of a sweep together."""
    return stacks[BOTH] if BOTH in stacks else next(iter(stacks.values()))


def task_of(model: Any) -> str | None:
    """The tag of a model's task on the Hub, by the name of its class; None without a head."""
    name = type(model).__name__
    return next((task for head, task in TASKS.items() if name.endswith(head)), None)


def is_classifier(model: Any) -> bool:
    return isinstance(model, ForSequenceClassification)


def answers_tokens(model: Any) -> bool:
    """Whether a model answers for each token at its own place: a token classifier or masked language model."""
    return isinstance(model, TokenHead)


def labels_tokens(model: Any) -> bool:
    return isinstance(model, ForTokenClassification)


def require_early_answers(model: Any) -> None:
    """Raise a ValueError unless a model can answer after fewer depth steps than its maximum."""
    if not model.config.capabilities.shared_block:
        raise ValueError(
            f"the model does not iterate one block (architecture {model.config.model_type!r}), so it cannot stop "
            "early: choose another one"
        )
    if model.base_model is model:
        raise ValueError(
            f"{type(model).__name__} has no head, so it answers nothing: load it with the head of its task"
        )
