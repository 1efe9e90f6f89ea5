"""A key/value cache that does not move what it holds: rooms are reserved once, steps write into them.

Transformers' own DynamicLayer concatenates, copying the whole cache at every token.
"""

from __future__ import annotations

from typing import Any

from transformers import DynamicCache  # type: ignore[import-not-found]
from transformers.cache_utils import DynamicLayer  # type: ignore[import-not-found]


class SlabLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values [rows, heads, length, size] as views of buffers with ``room`` tokens."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room
        self._slabs: tuple[Any, Any] | None = None

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Append along the length; returns all keys and values so far."""
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if self._slabs is None:
            self.lazy_initialization(key_states, value_states)
            room = max(self._room, end)
            shapes = [(*x.shape[:2], room, x.shape[3]) for x in (key_states, value_states)]
            self._slabs = key_states.new_empty(shapes[0]), value_states.new_empty(shapes[1])
        keys, values = self._slabs
        keys[:, :, start:end] = key_states
        values[:, :, start:end] = value_states
        self.keys, self.values = keys[:, :, :end], values[:, :, :end]
        return self.keys, self.values

    def batch_repeat_interleave(self, repeats: int) -> None:
        """One row becomes ``repeats`` rows, in buffers of their own."""
        if self._slabs is None:
            return
        end = self.get_seq_length()
        wide = tuple(slab.new_empty((len(slab) * repeats, *slab.shape[1:])) for slab in self._slabs)
        for old, new in zip(self._slabs, wide, strict=True):
            new[:, :, :end] = old[:, :, :end].repeat_interleave(repeats, dim=0)
        keys, values = self._slabs = wide
        self.keys, self.values = keys[:, :, :end], values[:, :, :end]

    def batch_select_indices(self, indices: Any) -> None:
        """Keep the rows ``indices`` (rising): they move to the front of the buffers."""
        if self._slabs is None:
            return
        end = self.get_seq_length()
        for slab in self._slabs:
            slab[: len(indices), :, :end] = slab[indices, :, :end]
        keys, values = self._slabs = tuple(slab[: len(indices)] for slab in self._slabs)
        self.keys, self.values = keys[:, :, :end], values[:, :, :end]


def slab_cache(cache: Any, room: int) -> Any:
    """``cache`` with its plain growing layers replaced; sliding-window and linear-attention layers stay as they are."""
    if not isinstance(cache, DynamicCache):
        return cache
    cache.layers = [SlabLayer(room) if type(x) is DynamicLayer else x for x in cache.layers]
    return cache


def plain(cache: Any) -> bool:
    """Whether every layer looks at all tokens, by their mask alone: only then may padding stand in the middle."""
    layers = getattr(cache, "layers", ())
    return bool(layers) and all(isinstance(x, SlabLayer) for x in layers)
