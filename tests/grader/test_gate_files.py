"""The header parser against any bytes: it accepts exact files and refuses all others, and never does anything else."""

from __future__ import annotations

import copy
import itertools
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gate_kit import SHAPES, base_values, entry, raw, weights
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grader.inside.gate_files import (
    WIDTHS,
    RefusedError,
    Tensor,
    clean,
    merged,
    open_all,
    parse_json,
    read_header,
    read_lora,
    same_tokenizer,
)


def _read(data: bytes, limit: int = 1 << 20) -> list[Tensor]:
    fd = os.memfd_create("x")
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        return read_header(fd, "model.safetensors", limit)
    finally:
        os.close(fd)


def test_a_plain_file_is_read_in_the_order_of_its_bytes() -> None:
    data = weights(base_values())
    tensors = _read(data)
    assert {tensor.name: tensor.shape for tensor in tensors} == SHAPES
    assert tensors[-1].end == len(data)
    assert [tensor.begin for tensor in tensors] == sorted(tensor.begin for tensor in tensors)


GOOD: dict[str, Any] = {"a": entry("F32", (2,), 0, 8), "b": entry("BF16", (2, 2), 8, 16)}


def _with(**changes: Any) -> Callable[[], bytes]:
    def build() -> bytes:
        header = copy.deepcopy(GOOD)
        header["b"].update(changes)
        return raw(header, b"\0" * 16)

    return build


def _offsets(begin: Any, end: Any) -> Callable[[], bytes]:
    return _with(data_offsets=[begin, end])


BAD: dict[str, Callable[[], bytes]] = {
    "overlap": _offsets(4, 12),
    "gap": _offsets(9, 17),
    "negative": _offsets(-8, 0),
    "beyond the end": _offsets(1 << 40, (1 << 40) + 8),
    "huge": _offsets(10**40, 10**40 + 8),
    "reversed": _offsets(16, 8),
    "bool offset": _offsets(True, 9),
    "float offset": _offsets(8.0, 16.0),
    "three offsets": _with(data_offsets=[8, 12, 16]),
    "wrapping shape": _with(shape=[1 << 33, 1 << 33]),
    "negative shape": _with(shape=[-2, -2]),
    "zero shape": _with(shape=[0, 4]),
    "nested shape": _with(shape=[[4]]),
    "text shape": _with(shape="4"),
    "foreign dtype": _with(dtype="I64"),
    "list dtype": _with(dtype=["BF16"]),
    "extra key": _with(extra=1),
    "null entry": lambda: raw({**GOOD, "b": None}, b"\0" * 16),
    "missing key": lambda: raw({"a": {"dtype": "F32", "shape": [4]}}, b"\0" * 16),
    "strange name": lambda: raw({"a\n": entry("F32", (4,), 0, 16)}, b"\0" * 16),
    "long name": lambda: raw({"a" * 600: entry("F32", (4,), 0, 16)}, b"\0" * 16),
    "name twice": lambda: raw(b'{"a":%s,"a":%s}' % ((json.dumps(entry("F32", (4,), 0, 16)).encode(),) * 2), b"\0" * 16),
    "metadata list": lambda: raw({**GOOD, "__metadata__": ["x"]}, b"\0" * 16),
    "metadata number": lambda: raw({**GOOD, "__metadata__": {"x": 1}}, b"\0" * 16),
    "array header": lambda: raw([], b""),
    "deep header": lambda: raw(b"[" * 200_000, b""),
    "deep object": lambda: raw(b'{"a":' * 100_000, b""),
    "not UTF-8": lambda: raw(b'{"\xff": 1}', b""),
    "many digits": lambda: raw(b'{"a": ' + b"9" * 10_000 + b"}", b""),
    "header past the end": lambda: (1 << 30).to_bytes(8, "little") + b"{}",
    "header length of 2^64 - 1": lambda: b"\xff" * 8 + b"{}" * 10,
    "nothing": lambda: b"",
    "eight bytes": lambda: b"\0" * 8,
    "trailing bytes": lambda: raw(GOOD, b"\0" * 17),
    "cut": lambda: raw(GOOD, b"\0" * 15),
    "over the limit": lambda: raw(json.dumps(GOOD).encode() + b" " * (1 << 20), b"\0" * 16),
}


@pytest.mark.parametrize("name", BAD)
def test_anything_but_an_exact_file_is_refused(name: str) -> None:
    with pytest.raises(RefusedError) as refused:
        _read(BAD[name]())
    assert str(refused.value).isprintable()


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_number = st.integers(-4, 40) | st.integers() | st.booleans() | st.floats()
_entry = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from([*WIDTHS, "I8", ""]) | _json,
        "shape": st.lists(_number, max_size=4) | _json,
        "data_offsets": st.lists(_number, min_size=2, max_size=2) | _json,
        "x": _json,
    },
)
_header = st.dictionaries(
    st.sampled_from(["a", "b", "c", "__metadata__"]) | st.text(max_size=6), _entry | _json, max_size=4
)


def _only_clean(read: Callable[[], list[Tensor]], size: int) -> None:
    """Either a refusal of one printable line, or tensors that tile the file exactly."""
    try:
        tensors = read()
    except RefusedError as refused:
        assert str(refused).isprintable() and len(str(refused)) < 600
        return
    for before, after in itertools.pairwise(tensors):
        assert before.end == after.begin
    for tensor in tensors:
        assert tensor.end - tensor.begin == math.prod(tensor.shape) * WIDTHS[tensor.dtype] > 0
    assert not tensors or tensors[-1].end == size


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    _only_clean(lambda: _read(data), len(data))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_header, st.integers(0, 40))
def test_any_header(header: dict[str, Any], size: int) -> None:
    data = raw(json.dumps(header).encode("utf-8", "surrogatepass"), b"\0" * size)
    _only_clean(lambda: _read(data), len(data))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_good_file_with_any_bytes_changed(data: st.DataObject) -> None:
    changed = bytearray(raw(GOOD, b"\0" * 16))
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(changed[: data.draw(st.integers(0, len(changed)))])
    for file in (bytes(changed), cut):
        _only_clean(lambda file=file: _read(file), len(file))  # type: ignore[misc]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(["peft_type", "r", "lora_alpha", "use_rslora", "bias", "init_lora_weights", "x"]),
        st.sampled_from(["LORA", "none", True, False, 4, 0.5]) | _json,
    )
)
def test_any_adapter_configuration(config: dict[str, Any]) -> None:
    try:
        lora = read_lora(config)
    except RefusedError as refused:
        assert str(refused).isprintable()
    else:
        assert 1 <= lora.r <= 1024 and 0 < lora.scale <= 65536


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_a_cleaned_text_is_one_printable_line(text: str) -> None:
    assert clean(text).isascii() and len(clean(text)) <= 120 and (clean(text).isprintable() or not text)


def test_a_tensor_in_two_files_is_refused() -> None:
    tensors = _read(raw(GOOD, b"\0" * 16))
    with pytest.raises(RefusedError, match="two files"):
        merged([tensors, tensors])


def test_strict_json() -> None:
    assert parse_json(b'{"a": [1]}', "x") == {"a": [1]}
    for bad in (b'{"a": 1, "a": 1}', b'{"a": Infinity}', b"3", b"", b"\xef\xbb\xbf{}"):
        with pytest.raises(RefusedError):
            parse_json(bad, "x")


def test_a_tokenizer_may_differ_in_padding_and_in_how_merges_are_written() -> None:
    own = {"model": {"merges": [["a", "b"]], "vocab": {"a": 0}}, "truncation": None, "version": "1.0"}
    assert same_tokenizer({**own, "truncation": {"max_length": 4}, "padding": {}}, own)
    assert same_tokenizer({**own, "model": {**own["model"], "merges": ["a b"]}}, own)  # type: ignore[dict-item]
    changes: list[dict[str, Any]] = [
        {"model": {"merges": [["b", "a"]], "vocab": {"a": 0}}},
        {"added_tokens": []},
        {"model": [1]},
    ]
    for change in changes:
        assert not same_tokenizer({**own, **change}, own)


def test_the_walk_opens_no_link_and_no_fifo(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    opened = open_all(str(tmp_path))
    assert list(opened) == ["config.json"]
    os.close(opened["config.json"])
    for make in (
        lambda path: path.symlink_to("/etc/passwd"),
        lambda path: os.mkfifo(path),
        lambda path: path.mkdir(),
        lambda path: path.with_suffix(".py").write_text(""),
    ):
        folder = tmp_path / f"case-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        make(folder / "README.md")
        with pytest.raises(RefusedError):
            open_all(str(folder))


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    for number in range(1001):
        (tmp_path / f"{number}.safetensors").touch()
    with pytest.raises(RefusedError, match="more than"):
        open_all(str(tmp_path))
