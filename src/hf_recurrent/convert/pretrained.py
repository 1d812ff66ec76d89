"""Checkpoints of other packages as models of this one, and back: renamed, with the very same weights."""

from pathlib import Path
from typing import Any

from huggingface_hub import save_torch_state_dict
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig, PreTrainedModel

from ..models.base.pretrained import share_weights
from ..utils import write_json
from .albert import ALBERT, SEPARATE
from .huginn import HUGINN
from .original import Original
from .ouro import OURO

ORIGINALS = {original.model_type: original for original in (ALBERT, OURO, HUGINN)}
# fields of transformers that a model keeps whatever its architecture is
KEPT = ("id2label", "label2id", "problem_type", "pad_token_id", "bos_token_id", "eos_token_id", "dtype", "torch_dtype")
# arguments of `from_pretrained` by which the config is found, too
HUB_OPTIONS = (
    *("cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder", "token"),
    *("_commit_hash", "trust_remote_code"),
)


def original_of(model_type: object, name: str | Path) -> Original:
    """The original with this `model_type`.

    Raises:
        ValueError: it is none that this package computes.
    """
    if not isinstance(model_type, str) or model_type not in ORIGINALS:
        raise ValueError(
            f"the config of {name} has model_type {model_type!r}: expected one of {', '.join(ORIGINALS)}; checkpoints "
            "of this package load with from_pretrained"
        )
    return ORIGINALS[model_type]


def from_pretrained_recurrent(
    pretrained_model_name_or_path: str | Path, auto_class: str | type | None = None, **kwargs: Any
) -> PreTrainedModel:
    """Load a checkpoint of ALBERT, Ouro or Huginn as a model of adaptive depth, with the same weights.

    Weights are renamed as they are read, without a second copy, and keep their dtype.

    Args:
        pretrained_model_name_or_path: as of transformers' `from_pretrained`.
        auto_class: the Auto class, or its name, of the head to load, such as "AutoModelForSequenceClassification";
            by default the head that the checkpoint has.
        kwargs: config fields, such as `exit_criterion` or `num_labels`, or the whole `config`, of this package; and
            arguments of `from_pretrained`.

    Returns:
        The model, in evaluation mode; with `output_loading_info=True` as transformers', also what was not loaded.

    Raises:
        ValueError: the checkpoint is of another architecture, its config has a field that ours cannot express, it
            lacks weights of the base model or has others, it holds two embeddings that its config ties and that differ,
            or there is no such head.
        OSError: there is no such checkpoint.
    """
    name = str(pretrained_model_name_or_path)
    options = {key: kwargs[key] for key in HUB_OPTIONS if key in kwargs}
    theirs, _ = PreTrainedConfig.get_config_dict(name, **options)
    original = original_of(theirs.get("model_type"), name)
    config = kwargs.pop("config", None)
    if config is None:
        config, kwargs = our_config(original, theirs, kwargs)
    heads = original.architecture.heads
    known = {original.prefix + suffix: head for head, suffix in heads.items()} | {**original.heads}
    of_theirs = (known[each] for each in theirs.get("architectures") or () if each in known)
    wanted = getattr(auto_class, "__name__", auto_class) or next(of_theirs, "AutoModel")
    if wanted not in heads:
        raise ValueError(f"auto_class is {wanted!r}: expected one of {', '.join(heads)}")
    with_report = kwargs.pop("output_loading_info", False)
    model, report = original.architecture.model_class(wanted).from_pretrained(
        name, config=config, key_mapping=original.key_mapping, output_loading_info=True, **kwargs
    )
    original.check_backbone(model, report, name)
    # transformers would save the model under their names again
    model._weight_conversions = None
    last = model.get_output_embeddings()
    tied = last is not None and model.config.tie_word_embeddings
    if tied and last.weight is not model.get_input_embeddings().weight:
        raise ValueError(
            f"the config of {name} ties the map to token ids to the embedding, but its weights hold both, and they "
            "differ: if both are wanted, pass tie_word_embeddings=False"
        )
    return (model, report) if with_report else model


def our_config(original: Original, theirs: dict[str, Any], kwargs: dict[str, Any]) -> tuple[PreTrainedConfig, dict]:
    """Our config for one of theirs, with fields of a call, and the call's other arguments.

    Raises:
        ValueError: a field that ours cannot express.
    """
    fields = original.our_fields(theirs) | {name: theirs[name] for name in KEPT if theirs.get(name) is not None}
    # the dtype of the checkpoint, which is the default
    kwargs = {name: value for name, value in kwargs.items() if name not in ("dtype", "torch_dtype") or value != "auto"}
    if any("Pabee" in name for name in theirs.get("architectures") or ()):
        fields |= SEPARATE
    if "halting" in kwargs:
        # the default of `depth_objective` depends on it
        fields["halting"] = kwargs["halting"]
    config_class = original.architecture.config_class
    try:
        return config_class.from_dict(fields, return_unused_kwargs=True, **kwargs)
    except StrictDataclassError as error:
        raise ValueError(f"this package cannot compute the {original.model_type} of the config: {error}") from error


def save_original(model: PreTrainedModel, folder: str | Path) -> Path:
    """Save a model as a checkpoint of the package that it is from: config.json and safetensors, under their names.

    Settings of generation go along.

    Raises:
        ValueError: the model is none that another package has, or has parameters that it has not.
    """
    original = next((each for each in ORIGINALS.values() if each.ours == model.config.model_type), None)
    if original is None:
        raise ValueError(f"the model is of architecture {model.config.model_type!r}, which no other package has")
    folder, config, weights = Path(folder), model.config.to_dict(), model.state_dict()
    # what decides here in float32 is theirs in the dtype of the rest
    state = {theirs: weights[ours].to(model.dtype) for theirs, ours in original.their_names(model).items()}
    state |= original.computed(model.config)
    fields = original.their_fields(model.config) | {name: config[name] for name in KEPT if config.get(name) is not None}
    suffix = type(model).__name__.removeprefix(original.architecture.prefix)
    pabee = "WithPabee" * (config.get("step_classifiers") == "separate")
    folder.mkdir(parents=True, exist_ok=True)
    save_torch_state_dict(state, folder, metadata={"format": "pt"})
    described = {"model_type": original.model_type, "architectures": [original.prefix + suffix + pabee]}
    write_json(folder / "config.json", dict(sorted((fields | described).items())))
    share_weights(folder, "config.json")
    if model.can_generate():
        model.generation_config.save_pretrained(folder)
    return folder
