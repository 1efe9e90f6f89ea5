"""Attention for models whose key/value heads are shared by several query heads (GQA), on a CPU with a mask.

Transformers copies keys and values once per query head before it calls torch, because torch's CUDA kernels need that
under a mask. On a CPU torch groups the heads itself, with the very same result and without the copies, which are most
of the time of a decoding step: SmolLM2-135M, 108 rows, 190 tokens, a layer 74 ms with copies, 7 ms without.
"""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found]
from transformers import AttentionInterface  # type: ignore[import-not-found]
from transformers.integrations.sdpa_attention import sdpa_attention_forward  # type: ignore[import-not-found]
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask  # type: ignore[import-not-found]

NAME = "grouped_sdpa"
_NO_MATTER = frozenset(("dropout", "is_causal", "position_ids", "sliding_window", "use_cache"))
"""What models pass that changes nothing under a mask, which holds causality and window already; nothing is trained
here, so nothing is dropped out."""


def grouped_sdpa(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, *, scaling: float | None = None, **more: Any
) -> tuple[Any, None]:
    """Transformers' sdpa attention; query [rows, heads, new, size], key and value [rows, shared heads, all, size]."""
    unknown = [name for name in more.keys() - _NO_MATTER if more[name] is not None]
    if query.device.type != "cpu" or attention_mask is None or key.shape[1] == query.shape[1] or unknown:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **more)
    mixed = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=scaling, enable_gqa=True
    )
    return mixed.transpose(1, 2).contiguous(), None


def register() -> str:
    """Make the attention known to transformers; returns the name that ``from_pretrained`` takes."""
    AttentionInterface.register(NAME, grouped_sdpa)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return NAME
