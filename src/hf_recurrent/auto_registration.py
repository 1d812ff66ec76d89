"""Register every architecture with transformers' Auto classes and with peft, without importing them before the user.

Importing the Auto classes imports torch, so registration waits until someone else imports them. That may be halfway
through the import of the layers our models need, so what is registered then is a lazy proxy of each model class.
Models get the function that saves their code in the same way, because it stands on layers above them. So does peft get
the modules that adapters are added to by default.
"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec

from .registry import ARCHITECTURES, Architecture

CONFIGS = "transformers.models.auto.configuration_auto"
MODELS = "transformers.models.auto.modeling_auto"
TOKENIZERS = "transformers.models.auto.tokenization_auto"
PRETRAINED = "hf_recurrent.models.base.pretrained"
ADAPTERS = "peft.utils.constants"
CAUSAL = "AutoModelForCausalLM"


def register_configs() -> None:
    for architecture in ARCHITECTURES.values():
        sys.modules[CONFIGS].AutoConfig.register(architecture.model_type, architecture.config_class, exist_ok=True)


def register_models() -> None:
    modeling_auto = sys.modules[MODELS]
    auto_classes = {
        name: value
        for name, value in vars(modeling_auto).items()
        if name.startswith("AutoModel") and getattr(value, "_model_mapping", None) is not None
    }
    for architecture in ARCHITECTURES.values():
        for name in auto_classes.keys() - architecture.heads.keys():
            auto_classes[name].register(architecture.config_class, NoHead(architecture, name), exist_ok=True)
        for auto_class, suffix in architecture.heads.items():
            lazy_class = LazyModelClass(
                architecture.prefix + suffix,
                (),
                {
                    "config_class": architecture.config_class,
                    "resolve": staticmethod(partial(architecture.model_class, auto_class)),
                },
            )
            getattr(modeling_auto, auto_class).register(architecture.config_class, lazy_class, exist_ok=True)
        if CAUSAL in architecture.heads:
            # by these names Trainer knows whose labels it has to shift for label smoothing
            names = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
            names[architecture.model_type] = architecture.prefix + architecture.heads[CAUSAL]


def register_tokenizer() -> None:
    """Let the class be found by its name, which saved tokenizers have; no architecture's config calls for it."""
    lazy_class = LazyModelClass("ByteLevelTokenizer", (), {"resolve": staticmethod(byte_level_tokenizer)})
    sys.modules[TOKENIZERS].AutoTokenizer.register(lazy_class, lazy_class, exist_ok=True)


def byte_level_tokenizer() -> type:
    return import_module("hf_recurrent.benchmarks.byte_level").ByteLevelTokenizer


def register_code() -> None:
    sys.modules[PRETRAINED].RecurrentPreTrainedModel.save_code = save_code


def save_code(model, folder: str) -> None:
    import_module("hf_recurrent.hub.checkpoint").save_code(model, folder)


def register_adapters() -> None:
    """Enter the modules that are adapted by default in each of peft's tables that has queries and values, as LoRA's."""
    tables = {name: table for name, table in vars(sys.modules[ADAPTERS]).items() if isinstance(table, dict)}
    of_lora = tables.get("TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING", {}).get("llama")
    if of_lora is None:
        return
    for name, table in tables.items():
        if name.endswith("_TARGET_MODULES_MAPPING") and table.get("llama") == of_lora:
            for architecture in ARCHITECTURES.values():
                table.setdefault(architecture.model_type, list(architecture.adapted) or NoDefault(architecture))


class NoDefault:
    """Stands in a table of modules for an architecture without any, and says so to whoever reads them."""

    def __init__(self, architecture: Architecture):
        self.architecture = architecture

    def __iter__(self) -> Iterator[str]:
        raise ValueError(
            f"the adapter's config names no `target_modules`, and {self.architecture.model_type} has no queries and "
            f"values to adapt by default: pass {self.architecture.adapted_by_name}"
        )


class NoHead:
    """Stands where an Auto class looks for its model of an architecture without such a head, and says so."""

    def __init__(self, architecture: Architecture, auto_class: str):
        self.architecture = architecture
        self.auto_class = auto_class
        # transformers reads these of a class
        self.config_class = architecture.config_class
        self.__name__ = f"no {architecture.prefix}"

    def from_pretrained(self, *args, **kwargs):
        heads = ", ".join(self.architecture.heads)
        others = [each.model_type for each in ARCHITECTURES.values() if self.auto_class in each.heads]
        instead = f", or start with an architecture that has one: {', '.join(others)}" if others else ""
        raise ValueError(
            f"{self.auto_class} has no model for {self.architecture.model_type}: load it with one of {heads}{instead}"
        )

    _from_config = from_pretrained


class LazyModelClass(type):
    """A class that imports the class it stands for when anything is asked of it."""

    def __getattr__(cls, name: str):
        return getattr(cls.resolve(), name)

    def __call__(cls, *args, **kwargs):
        return cls.resolve()(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.resolve())

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.resolve())


class AfterImport(MetaPathFinder):
    """Calls back once, right after a module has been imported for the first time."""

    def __init__(self, callbacks: dict[str, Callable[[], None]]):
        self.callbacks = callbacks

    def find_spec(self, name: str, path=None, target=None) -> ModuleSpec | None:
        callback = self.callbacks.pop(name, None)
        if callback is None:
            return None
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = CallingLoader(spec.loader, callback)
        return spec


class CallingLoader(Loader):
    def __init__(self, loader: Loader, callback: Callable[[], None]):
        self.loader = loader
        self.callback = callback

    def create_module(self, spec: ModuleSpec):
        return self.loader.create_module(spec)

    def exec_module(self, module) -> None:
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.callback()


def install() -> None:
    """Register now what is imported already, and the rest when it is."""
    waiting = {}
    callbacks = {
        CONFIGS: register_configs,
        MODELS: register_models,
        TOKENIZERS: register_tokenizer,
        PRETRAINED: register_code,
        ADAPTERS: register_adapters,
    }
    for module, callback in callbacks.items():
        if module in sys.modules:
            callback()
        else:
            waiting[module] = callback
    if waiting:
        sys.meta_path.insert(0, AfterImport(waiting))
