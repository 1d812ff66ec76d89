"""Work, memory and minutes of the recipes of the papers' sizes on an H200, from their configs.

Multiply-accumulates are those of every weight matrix, once for each token and depth step that it is applied to, and of
scores; all depth steps are counted, so that halting can only lower them. `tests/test_gpu_day.py` sets them beside the
work that a CPU counts (`perf/work.py`). A training step costs three forward passes. Its time is the longer one of that
of its products, at `UTILIZATION` of the peak, and that of launching its operators, whose number is the one that
`perf/results/counted.json` has of a training step, scaled to the recipe's depth. A launch takes the time that the first
day on an H200 had for it, Python included; the share of the peak has not been measured.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import nn

from hf_recurrent.recipes import find_recipe, recipe_files
from hf_recurrent.registry import ARCHITECTURES
from hf_recurrent.training.recipes import read_mapping
from perf.core import Table, as_text
from perf.counted import TITLE
from perf.stored import Stored, path_of

from .device import GIB

# multiply-accumulates a second of an H200 in bfloat16, the share of them that small products reach, and what launching
# an operator takes: forward passes of UT and GUT took 25 to 35 microseconds a launch
PEAK, UTILIZATION, LAUNCH_SECONDS = 494e12, 0.3, 30e-6
# parameter, gradient and two moments of Adam, float32
BYTES_OF_PARAMETER = 16
# values kept for the backward pass, for each column of a weight matrix's input and output, in bfloat16
BYTES_OF_ACTIVATION = 2
# longest examples in tokens by benchmark, pairs together, and tokens of a vocabulary where it is large
LENGTHS = {
    "flip_flop": 512,
    "compositional_table_lookup": 14,
    "simple_arithmetic": 40,
    "listops_depth": 64,
    "listops": 100,
    "logical_inference": 60,
    "lra_listops": 2_000,
    "lra_text": 4_096,
    "lra_image": 1_024,
    "lra_pathfinder": 1_024,
    "lra_retrieval": 8_000,
    "long_documents": 4_096,
    "cfq": 60,
    "wmt14_en_de": 60,
    "logical_inference_translation": 60,
}
VOCABULARIES = {"long_documents": 32_000, "wmt14_en_de": 32_000, "lra_text": 260, "lra_image": 260}
DEFAULT_VOCABULARY, DEFAULT_BATCH, COUNTED_STEPS = 64, 32, 6


class Estimate(NamedTuple):
    """What a recipe costs.

    Attributes:
        parameters: of the model.
        products: multiply-accumulates of an optimiser step, forward and backward.
        bytes: of parameters, gradients, moments and what a backward pass needs.
        seconds: of an optimiser step on an H200.
        steps: of the optimiser; None where the recipe counts epochs of data whose number is not known here.
    """

    parameters: int
    products: float
    bytes: float
    seconds: float
    steps: int | None


def model_of(recipe: dict[str, Any], vocabulary: int) -> nn.Module:
    """The recipe's model without weights."""
    family = ARCHITECTURES[recipe["model_type"]]
    heads = {"flip_flop": "AutoModelForCausalLM", "long_documents": "AutoModelForCausalLM"}
    pairs = {name: "AutoModelForSeq2SeqLM" for name in ("cfq", "wmt14_en_de", "logical_inference_translation")}
    head = {**heads, **pairs}.get(recipe["benchmark"], "AutoModelForSequenceClassification")
    fields = {"vocab_size": vocabulary, **({"is_encoder_decoder": True} if head.endswith("Seq2SeqLM") else {})}
    with torch.device("meta"):
        return family.model_class(head)(family.config_class(**{**fields, **recipe.get("config", {})}))


def applications(name: str, steps: int) -> int:
    """How often a step of the whole model applies a parameter to a token."""
    return steps if ".block." in name or "halting_head" in name else 1


def share_of_experts(name: str, parameter: torch.Tensor, config: Any) -> float:
    """Share of the experts that see a token, of parameters (E, in, out) of all of them."""
    if parameter.dim() < 3:
        return 1.0
    kind = "feed_forward" if "feed_forward" in name else "attention"
    return getattr(config, f"{kind}_experts_per_token", 1) / max(1, getattr(config, f"{kind}_experts", 1))


def keys_of(config: Any, length: int) -> float:
    """Keys that a query of a sequence of this length meets, on average."""
    if hasattr(config, "chunk_size"):
        return min(length, config.chunk_size) + 1
    if hasattr(config, "window_size"):
        return min(length, 2 * config.window_size)
    return length


def forward_products(model: nn.Module, rows: int, length: int) -> float:
    """Multiply-accumulates of a forward pass over rows of this length, with all depth steps."""
    config, tokens, found = model.config, rows * length, 0.0
    steps = config.num_hidden_layers
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2 or id(parameter) in embeddings:
            continue
        # of a whole sequence, but for language models, which decide at each token
        whole = (
            "halting_head" in name and getattr(config, "halting", None) == "global" and not hasattr(model, "lm_head")
        )
        places = rows if "classifier" in name or whole else tokens
        share = share_of_experts(name, parameter, config)
        found += places * parameter.numel() * share * applications(name, steps)
    if not hasattr(config, "num_attention_heads"):
        return found
    width = getattr(config, "head_dim", config.hidden_size // config.num_attention_heads) * config.num_attention_heads
    queries = width * getattr(config, "attention_experts_per_token", 1)
    return found + 2 * tokens * keys_of(config, length) * queries * steps


def activation_bytes(model: nn.Module, tokens: int) -> float:
    """What a backward pass needs of a forward pass: inputs and outputs of every weight matrix, once a step."""
    columns = sum(
        sum(parameter.shape[-2:]) * applications(name, model.config.num_hidden_layers)
        for name, parameter in model.named_parameters()
        if parameter.dim() >= 2 and "embed" not in name
    )
    return BYTES_OF_ACTIVATION * tokens * columns


def counted_operators(architecture: str) -> int:
    """Operators of a training step of the small model whose work is stored, optimiser left out."""
    rows = Stored.read(path_of("counted")).table(TITLE).rows
    found = {row["architecture"]: row["calls"] for row in rows if row["mode"] == "training"}
    return found.get(architecture, max(found.values()))


def estimate(name: str) -> Estimate:
    """What the recipe of this name costs.

    Raises:
        FileNotFoundError: there is no such recipe.
    """
    recipe = read_mapping(find_recipe(name))
    benchmark = recipe["benchmark"]
    full = f"{benchmark}_{recipe.get('benchmark_config', '')}" if benchmark == "lra" else benchmark
    length = LENGTHS.get(full, LENGTHS.get(benchmark, 1_024))
    model = model_of(recipe, VOCABULARIES.get(full, DEFAULT_VOCABULARY))
    rows = recipe.get("per_device_train_batch_size", DEFAULT_BATCH)
    if "batch_tokens" in recipe:
        rows = max(1, recipe["batch_tokens"] // length)
    accumulated = recipe.get("gradient_accumulation_steps", 1)
    products = 3 * forward_products(model, rows, length) * accumulated
    operators = counted_operators(recipe["model_type"]) * model.config.num_hidden_layers / COUNTED_STEPS
    if hasattr(model.config, "chunk_size"):
        operators *= max(1, length / model.config.chunk_size) / (32 / 10)
    seconds = max(products / (PEAK * UTILIZATION), operators * accumulated * LAUNCH_SECONDS)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    kept = BYTES_OF_PARAMETER * parameters + activation_bytes(model, rows * length)
    steps = recipe.get("max_steps")
    return Estimate(parameters, products, kept, seconds, steps if steps and steps > 0 else None)


def names() -> list[str]:
    """Recipes of the papers' sizes: those of this package that name a table, and are not for a CPU."""
    found = {
        name: read_mapping(path) for name, path in recipe_files().items() if not name.startswith(("cpu/", "glue/"))
    }
    return [name for name, recipe in found.items() if "paper" in recipe and "benchmark" in recipe]


def table(chosen: list[str] | None = None) -> Table:
    """The estimates, cheapest first."""
    rows = []
    for name in chosen or names():
        found = estimate(name)
        rows.append(
            {
                "recipe": name,
                "parameters": found.parameters,
                "TFLOPs a step": 2 * found.products / 1e12,
                "GiB": found.bytes / GIB,
                "ms a step": 1e3 * found.seconds,
                "steps": found.steps,
                "minutes": found.seconds * found.steps / 60 if found.steps else None,
            }
        )
    rows.sort(key=lambda row: math.inf if row["minutes"] is None else row["minutes"])
    note = "Estimates, all depth steps taken; no GPU has run them. Without minutes: the recipe counts epochs."
    return Table("Recipes of the papers' sizes on an H200", rows, note)


def fitting_batch(name: str, free: int) -> int:
    """The largest batch of a recipe, at most its own, that fits into so many bytes; 0 if none does."""
    recipe = read_mapping(find_recipe(name))
    whole, rows = estimate(name), recipe.get("per_device_train_batch_size", DEFAULT_BATCH)
    fixed = BYTES_OF_PARAMETER * whole.parameters
    if whole.bytes <= free:
        return rows
    return max(0, int(rows * (free - fixed) / (whole.bytes - fixed)))


def main() -> None:
    print(as_text(table()))
