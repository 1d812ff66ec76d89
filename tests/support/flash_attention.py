"""The `flash_attn` package replaced by plain torch, so that the FlashAttention-2 path runs on any machine.

Shapes: B rows, Q queries, K keys, N packed queries, M packed keys, H heads, D head dim.
"""

import contextlib
import importlib.machinery
import sys
import types
from unittest import mock

import pytest
import torch
from transformers import modeling_flash_attention_utils as hf_flash
from transformers.integrations import hub_kernels
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS


def flash_attn_func(q, k, v, *args, **kwargs):
    """Rows without padding."""
    calls.append((q.shape[:2].numel(), k.shape[:2].numel()))
    return attention(q, k, v, *args, **kwargs)


def attention(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, deterministic=False, window_size=(-1, -1)):
    """Softmax attention: (B, Q, H, D) x (B, K, H, D) -> (B, Q, H, D).

    As in FlashAttention 2.1 and later, `causal` aligns the last query with the last key; queries that see no key get
    zeros. `window_size` is how many keys further to the left and to the right may be seen, -1 for all. A head of keys
    serves as many successive heads of queries as it takes.
    """
    assert dropout_p == 0.0
    k, v = (states.repeat_interleave(q.shape[2] // k.shape[2], dim=2) for states in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * softmax_scale
    if causal:
        num_queries, num_keys = q.shape[1], k.shape[1]
        visible = torch.ones(num_queries, num_keys, dtype=torch.bool).tril(num_keys - num_queries)
        if window_size[0] >= 0:
            visible = visible.triu(num_keys - num_queries - window_size[0])
        scores = scores.masked_fill(~visible, -torch.inf)
        # softmax over nothing is NaN, and so would its gradient be
        scores = torch.where(visible.any(-1)[:, None], scores, 0.0)
        return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1) * visible, v)
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    deterministic=False,
    window_size=(-1, -1),
):
    """Rows packed end to end, (N, H, D) x (M, H, D), cut at the cumulative lengths (B + 1,) as the kernel demands."""
    calls.append((q.shape[0], k.shape[0]))
    for packed, ends, longest in ((q, cu_seqlens_q, max_seqlen_q), (k, cu_seqlens_k, max_seqlen_k)):
        assert ends.dtype is torch.int32
        assert (int(ends[0]), int(ends[-1])) == (0, packed.shape[0])
        assert int(ends.diff().max()) == int(longest)
    rows = []
    bounds = torch.stack((cu_seqlens_q[:-1], cu_seqlens_q[1:], cu_seqlens_k[:-1], cu_seqlens_k[1:]), dim=1)
    for q_start, q_end, k_start, k_end in bounds.tolist():
        row = (q[None, q_start:q_end], k[None, k_start:k_end], v[None, k_start:k_end])
        rows.append(attention(*row, dropout_p, softmax_scale, causal, window_size=window_size).squeeze(0))
    return torch.cat(rows)


def flash_attn_with_kvcache(*args, **kwargs):
    raise AssertionError("encoders have no cache")


# how many queries and keys every call had since `installed` was entered
calls: list[tuple[int, int]] = []


@contextlib.contextmanager
def installed():
    """transformers finds the replacement where it looks for the package, and does not ask for a GPU."""
    package = types.ModuleType("flash_attn")
    package.__spec__ = importlib.machinery.ModuleSpec("flash_attn", None)
    package.flash_attn_func = flash_attn_func
    package.flash_attn_varlen_func = flash_attn_varlen_func
    package.flash_attn_with_kvcache = flash_attn_with_kvcache
    padding = types.ModuleType("flash_attn.bert_padding")
    padding.pad_input, padding.unpad_input = hf_flash._pad_input, hf_flash._unpad_input
    checks = {"general_availability_check": lambda: True, "supported_devices": ((lambda: True, "cpu"),)}
    calls.clear()
    with (
        pytest.MonkeyPatch.context() as patch,
        mock.patch.dict(hf_flash.FLASH_ATTENTION_COMPATIBILITY_MATRIX[2], checks),
        mock.patch.object(hf_flash, "is_flash_attn_2_available", return_value=True),
        mock.patch.object(hf_flash, "_loaded_implementation", None),
    ):
        # `mock.patch.dict` would forget what is imported meanwhile
        patch.setitem(sys.modules, "flash_attn", package)
        patch.setitem(sys.modules, "flash_attn.bert_padding", padding)
        yield


@contextlib.contextmanager
def on_the_hub():
    """transformers' loader of kernels finds the replacement on the Hub; yields the arguments that it asks with."""
    kernel = types.SimpleNamespace(
        flash_attn_func=flash_attn_func,
        flash_attn_varlen_func=flash_attn_varlen_func,
        flash_attn_with_kvcache=flash_attn_with_kvcache,
    )
    calls.clear()
    with (
        mock.patch.object(hub_kernels, "is_kernels_available", return_value=True),
        mock.patch.object(hub_kernels, "get_kernel", return_value=kernel) as get_kernel,
        # in which loaded kernels are registered
        mock.patch.dict(ALL_ATTENTION_FUNCTIONS._global_mapping),
        mock.patch.dict(ALL_MASK_ATTENTION_FUNCTIONS._global_mapping),
        mock.patch.object(hf_flash, "_loaded_implementation", None),
    ):
        yield get_kernel
