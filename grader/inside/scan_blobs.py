"""What in a component is no text a person wrote: weights by their headers, and opaque bytes by size and entropy.

Standard library only; runs in the reader's sandbox. Nothing here judges: it counts, and the limits are the config's.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grader.inside.scan_views import RUN, text_of
else:  # the folder holds just these three files, and no package of ours
    from scan_views import RUN, text_of

BLOCK = 64 << 10
DENSE = 0.68
"""A block that zlib cannot make smaller than this share is no prose, code or JSON (base64: 0.76, text: below 0.6)."""
_LONG = 120
_NUMERIC = re.compile(r"[-+0-9.eE,\s\[\]]+")
_NUMBER = re.compile(r"[^,\s\[\]]+")
_SHORT = 512
FLOATS, NUMBERS = 64, 4096
"""So many numbers in a row are no sentence, nor the tokens of one."""
_MAGIC = (
    (b"\x93NUMPY", "a numpy array"), (b"GGUF", "GGUF weights"), (b"ggml", "ggml weights"), (b"lmgg", "ggml weights"),
    (b"\x89HDF\r\n", "an HDF5 file"), (b"\x7fELF", "a compiled program"), (b"MZ\x90", "a compiled program"),
)  # fmt: skip


def weights_kind(data: bytes) -> str:
    """What format of weights or objects ``data`` begins as, "" for none."""
    for magic, kind in _MAGIC:
        if data.startswith(magic):
            return kind
    if data.startswith(b"PK\x03\x04") and re.search(rb"data\.pkl|\.npy|/data/\d", data[:4096] + data[-65536:]):
        return "weights in a zip"
    if len(data) > 2 and data[0] == 0x80 and 2 <= data[1] <= 5 and data.rstrip(b"\0").endswith(b"."):
        return "a pickle"
    return "safetensors weights" if _safetensors(data) else ""


def _safetensors(data: bytes) -> bool:
    length = int.from_bytes(data[:8], "little")
    if not 2 <= length <= min(len(data) - 8, 100_000_000) or data[8:9] != b"{":
        return False
    try:
        header = json.loads(data[8 : 8 + length])
    except (ValueError, RecursionError):
        return b'"data_offsets"' in data[8 : 8 + length]
    return any(isinstance(value, dict) and "data_offsets" in value for value in header.values())


def opaque_bytes(data: bytes) -> int:
    """How many bytes of a file are no text that a person or a model writes."""
    text = text_of(data)
    if text is None:
        return len(data)
    runs = sum(len(found[0]) for found in RUN.finditer(text) if len(found[0]) >= _LONG)
    runs += sum(len(found[0]) for found in _NUMERIC.finditer(text) if _is_array(found[0]))
    dense = 0
    for begin in range(0, len(data), BLOCK):
        block = data[begin : begin + BLOCK]
        if len(block) >= 4096 and len(zlib.compress(block, 1)) > DENSE * len(block):
            dense += len(block)
    return min(len(data), max(runs, dense))


def _is_array(run: str) -> bool:
    """Whether a run of digits and separators is an array of numbers and no table or calculation."""
    if len(run) < _SHORT:
        return False
    numbers = _NUMBER.findall(run)
    return len(numbers) >= NUMBERS or sum("." in number for number in numbers) >= FLOATS
