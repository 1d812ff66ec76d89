"""Recurrent-depth, dynamic-halting and chunk-recurrent Transformers for Hugging Face transformers.

`import hf_recurrent` makes `AutoConfig`, `AutoModel` and the task Auto classes know every architecture of the package.
"""

from importlib import import_module

from .auto_registration import install
from .registry import ARCHITECTURES

__version__ = "0.1.0"

# public name -> module that defines it
PUBLIC = {
    "evaluate": "hf_recurrent.analysis.evaluate",
    "from_pretrained_recurrent": "hf_recurrent.convert",
    "load_benchmark": "hf_recurrent.benchmarks",
    "save_checkpoint": "hf_recurrent.hub.checkpoint",
}
for _architecture in ARCHITECTURES.values():
    PUBLIC |= _architecture.class_names

__all__ = ["ARCHITECTURES", "__version__", *sorted(PUBLIC)]

install()


def __getattr__(name: str):
    if name in PUBLIC:
        return getattr(import_module(PUBLIC[name]), name)
    raise AttributeError(f"module 'hf_recurrent' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
