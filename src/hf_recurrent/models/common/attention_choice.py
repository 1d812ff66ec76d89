"""Attention implementations that transformers would look for, but that models of this package do not support."""

from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils.import_utils import is_kernels_available

from .fields import shown

SUPPORTED = "use 'sdpa', 'eager' or, on a GPU, 'flash_attention_2' or 'flex_attention'"


def is_hub_kernel(implementation: str) -> bool:
    """Whether a name is that of a kernel on the Hub, such as "kernels-community/flash-attn2"."""
    return "/" in implementation and "|" not in implementation


def check_name(implementation: object) -> None:
    """Raise a ValueError unless an implementation is a name, other than of one for continuous batching."""
    if implementation is None:
        return
    if not isinstance(implementation, str):
        raise ValueError(f"attn_implementation is {shown(implementation)}: pass a name; {SUPPORTED}")
    if implementation.startswith("paged"):
        raise ValueError(
            f"attn_implementation is {implementation!r}, which is for continuous batching: depth-recurrent and "
            f"chunk-recurrent models cache more than its keys and values; {SUPPORTED}"
        )


def check_implementation(implementation: str | None) -> None:
    """Raise a ValueError unless models may have an implementation; the names of transformers' they may."""
    if implementation is None:
        return
    check_name(implementation)
    if implementation not in ("eager", *ALL_ATTENTION_FUNCTIONS.valid_keys()):
        reason = "which is not supported"
        if "sdpa" in implementation:
            raise ValueError(
                f"attn_implementation is {implementation!r}, {reason}: pass 'sdpa', and call the model inside "
                "torch.nn.attention.sdpa_kernel(...) to choose its backend"
            )
        if is_hub_kernel(implementation):
            reason = "a kernel of the Hub; those of FlashAttention are supported, and need the package `kernels`"
        raise ValueError(f"attn_implementation is {implementation!r}, {reason}: {SUPPORTED}")


def can_load(implementation: str) -> bool:
    """Whether transformers may load a kernel of the Hub for models that support FlashAttention."""
    return "flash" in implementation and is_kernels_available()
