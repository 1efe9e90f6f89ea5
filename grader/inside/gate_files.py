"""The gate's rules for names, headers and configuration. Runs inside the gate's sandbox: standard library only.

Everything read here was written by a trainer, which is hostile: each fault is one :class:`RefusedError`, never another
exception, and nothing is read that is not a regular file of an allowed name.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

WIDTHS = {"BF16": 2, "F16": 2, "F32": 4}
HEADER_BYTES = 100_000_000
_ENTRIES = 1000
_JSON_BYTES = 1 << 20
_LARGEST = 1 << 48

READ = frozenset(("adapter_config.json", "tokenizer.json", "config.json"))
"""Files that are looked into; the rest of the allowed ones are replaced by the base's, or left behind."""

IGNORED = frozenset(
    (
        "model.safetensors.index.json", "tokenizer_config.json", "generation_config.json", "special_tokens_map.json",
        "chat_template.jinja", "README.md", ".gitattributes", "vocab.json", "vocab.txt", "merges.txt",
        "added_tokens.json", "trainer_state.json", "all_results.json", "train_results.json",
    )
)  # fmt: skip


class RefusedError(Exception):
    """The checkpoint is refused; the text is one line for the agent."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where a tensor lies: in ``fd`` from ``begin`` to ``end`` (bytes of the file)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    fd: int
    begin: int
    end: int

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


def refuse(what: str, where: str = "") -> NoReturn:
    """Raises RefusedError with a cleaned line."""
    raise RefusedError(f"{clean(where)}: {what}" if where else what)


def clean(text: str) -> str:
    """Foreign text in printable ASCII, at most 120 characters."""
    safe = "".join(letter if " " <= letter <= "~" else "?" for letter in text[:200])
    return safe if len(safe) <= 120 else safe[:117] + "..."


def open_all(folder: str) -> dict[str, int]:
    """Descriptors of all files in ``folder``, by name, sorted; refuses what may not be there."""
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        names = sorted(os.listdir(top))  # noqa: PTH208  a descriptor, not a path
        if len(names) > _ENTRIES:
            refuse(f"more than {_ENTRIES} files")
        return {name: _open_one(top, name) for name in names}
    finally:
        os.close(top)


def _open_one(top: int, name: str) -> int:
    kind = stat.S_IFMT(os.lstat(name, dir_fd=top).st_mode)
    if kind == stat.S_IFDIR:
        refuse("folders do not pass the gate; write the final adapter or weights directly into --out", name)
    if kind != stat.S_IFREG:
        refuse("is a link or a special file; only regular files pass the gate", name)
    if not (name in READ or name in IGNORED or re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.safetensors", name)):
        refuse("this kind of file does not pass the gate; remove it (weights as .safetensors only)", name)
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=top)
    except OSError as error:
        refuse(f"cannot be opened ({error.strerror})", name)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        refuse("is not a regular file", name)
    return fd


def read_exact(fd: int, size: int, offset: int) -> bytes:
    """``size`` bytes at ``offset``; refuses a file that has become shorter."""
    data = bytearray()
    while len(data) < size:
        chunk = os.pread(fd, min(size - len(data), 1 << 24), offset + len(data))
        if not chunk:
            refuse("a file is shorter than it was")
        data += chunk
    return bytes(data)


def parse_json(data: bytes, name: str) -> dict[str, Any]:
    """A JSON object, strictly: UTF-8, no key twice, no NaN; refuses anything else."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) != len(pairs):
            refuse("a key occurs twice", name)
        return fields

    def constant(word: str) -> NoReturn:
        refuse("NaN and Infinity are not JSON", name)

    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=unique, parse_constant=constant)
    except (ValueError, RecursionError):
        refuse("is not valid JSON", name)
    if not isinstance(value, dict):
        refuse("is not a JSON object", name)
    return value


def read_json(fd: int, name: str, limit: int = _JSON_BYTES) -> dict[str, Any]:
    """The JSON object in a whole file of at most ``limit`` bytes."""
    size = os.fstat(fd).st_size
    if size > limit:
        refuse(f"is larger than {limit} bytes", name)
    return parse_json(read_exact(fd, size, 0), name)


def read_header(fd: int, name: str, limit: int = HEADER_BYTES) -> list[Tensor]:
    """The tensors of a safetensors file in the order of their bytes; refuses every header but a plain, exact one.

    ``limit`` bounds the header's length in bytes.
    """
    size = os.fstat(fd).st_size
    if size < 10:
        refuse("is too short to be safetensors", name)
    length = int.from_bytes(read_exact(fd, 8, 0), "little")
    if length > min(limit, HEADER_BYTES) or 8 + length > size:
        refuse(f"a header of {length} bytes does not fit this file or this model", name)
    return tensors_of(parse_json(read_exact(fd, length, 8), name), fd, 8 + length, size, name)


def tensors_of(header: Mapping[str, Any], fd: int, start: int, size: int, name: str) -> list[Tensor]:
    """The tensors that a parsed header describes, which must fill the bytes from ``start`` to ``size`` exactly."""
    _check_metadata(header.get("__metadata__"), name)
    entries = [(key, value) for key, value in header.items() if key != "__metadata__"]
    tensors = sorted((_tensor(key, value, fd, start, name) for key, value in entries), key=lambda one: one.begin)
    at = start
    for tensor in tensors:
        if tensor.begin != at:
            refuse(f"the bytes of {clean(tensor.name)} overlap others or leave a gap", name)
        at = tensor.end
    if at != size:
        refuse("its tensors do not end where the file ends", name)
    return tensors


def _check_metadata(value: Any, name: str) -> None:
    """Never used and never copied; only its form is checked, as the format demands text to text."""
    good = value is None or (isinstance(value, dict) and all(isinstance(text, str) for text in value.values()))
    if not good:
        refuse("__metadata__ is not a table of texts", name)


def _tensor(key: str, value: Any, fd: int, start: int, name: str) -> Tensor:
    where = f"{name}: {clean(key)}"
    if not re.fullmatch(r"[A-Za-z0-9_.\-]{1,512}", key):
        refuse("a tensor's name is not plain", where)
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        refuse("needs dtype, shape and data_offsets, and nothing else", where)
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in WIDTHS:
        refuse("its dtype is not BF16, F16 or F32", where)
    if not _counts(shape) or len(shape) > 8 or not all(shape):
        refuse("its shape is not a list of sizes", where)
    if not _counts(offsets) or len(offsets) != 2:
        refuse("its data_offsets are not two offsets", where)
    if offsets[1] - offsets[0] != math.prod(shape) * WIDTHS[dtype]:
        refuse("its offsets do not match its shape", where)
    return Tensor(key, dtype, tuple(shape), fd, start + offsets[0], start + offsets[1])


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(number) is int and 0 <= number < _LARGEST for number in value)


def merged(files: Iterable[list[Tensor]]) -> dict[str, Tensor]:
    """The tensors of all files by name; refuses one that occurs in two."""
    found: dict[str, Tensor] = {}
    for tensor in (tensor for tensors in files for tensor in tensors):
        if tensor.name in found:
            refuse("occurs in two files", tensor.name)
        found[tensor.name] = tensor
    return found


def check_no_code(config: Mapping[str, Any], name: str) -> None:
    """Refuses a configuration that names code to load, at any depth."""
    for key in _keys(config):
        if key in ("auto_map", "custom_pipelines", "trust_remote_code"):
            refuse(f"{key} asks for foreign code", name)


def _keys(value: Any) -> Iterator[str]:
    level = [value]
    while level:
        item = level.pop()
        if isinstance(item, dict):
            yield from item
            level.extend(item.values())
        elif isinstance(item, list):
            level.extend(item)


def same_tokenizer(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two tokenizer.json mean the same: trainers leave their padding and truncation, and old files write a
    merge as one text where new ones write a pair."""
    return _plain_tokenizer(one) == _plain_tokenizer(other)


def _plain_tokenizer(tokenizer: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in tokenizer.items() if key not in ("padding", "truncation")}
    model = plain.get("model")
    if isinstance(model, dict) and isinstance(model.get("merges"), list):
        pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
        plain["model"] = {**model, "merges": pairs}
    return plain


@dataclass(frozen=True, slots=True)
class Lora:
    """What an adapter's configuration decides: the rank and the factor of B·A."""

    r: int
    alpha: float
    rslora: bool

    @property
    def scale(self) -> float:
        """The factor as PEFT computes it."""
        return self.alpha / (math.sqrt(self.r) if self.rslora else self.r)


_HARMLESS = frozenset(
    (
        "task_type", "peft_version", "base_model_name_or_path", "revision", "inference_mode", "target_modules",
        "exclude_modules", "lora_dropout", "layers_to_transform", "layers_pattern", "megatron_core",
        "qalora_group_size", "ensure_weight_tying", "r", "lora_alpha", "use_rslora", "peft_type", "bias",
        "init_lora_weights",
    )
)  # fmt: skip


def read_lora(config: Mapping[str, Any], name: str = "adapter_config.json") -> Lora:
    """The few facts of an adapter_config.json that count; refuses every feature that would change what is applied."""
    check_no_code(config, name)
    if config.get("peft_type") != "LORA" or config.get("bias", "none") != "none":
        refuse("only peft_type LORA with bias none passes the gate", name)
    if config.get("init_lora_weights", True) not in (True, False, "gaussian", "orthogonal"):
        refuse("init_lora_weights of this kind changes the base; use true, gaussian or orthogonal", name)
    for key, value in config.items():
        if key not in _HARMLESS and value not in (None, False, "", [], {}):
            refuse(f"{clean(key)} is not supported", name)
    r, alpha, rslora = config.get("r"), config.get("lora_alpha"), config.get("use_rslora", False)
    if not isinstance(r, int) or isinstance(r, bool) or not 1 <= r <= 1024:
        refuse("r must be a whole number from 1 to 1024", name)
    if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not 0 < alpha <= 65536:
        refuse("lora_alpha must be a number above 0, at most 65536", name)
    if not isinstance(rslora, bool):
        refuse("use_rslora must be true or false", name)
    return Lora(r, float(alpha), rslora)


def lora_pairs(tensors: Mapping[str, Tensor], base: Mapping[str, Tensor], r: int) -> dict[str, tuple[Tensor, Tensor]]:
    """A and B for each adapted weight of the base, by module name; refuses tensors that fit no weight of it."""
    halves: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        found = re.fullmatch(r"base_model\.model\.(.+)\.lora_(A|B)\.weight", name)
        if not found:
            refuse("is not a LoRA matrix of the base model", name)
        halves.setdefault(found[1], {})[found[2]] = tensor
    pairs: dict[str, tuple[Tensor, Tensor]] = {}
    for module, half in sorted(halves.items()):
        weight = base.get(module + ".weight")
        if weight is None or len(weight.shape) != 2 or module.endswith("embed_tokens"):
            refuse("the base has no linear layer of this name", module)
        if set(half) != {"A", "B"}:
            refuse("lora_A or lora_B is missing", module)
        if half["A"].shape != (r, weight.shape[1]) or half["B"].shape != (weight.shape[0], r):
            refuse(f"the shapes of lora_A and lora_B do not fit the layer and r = {r}", module)
        pairs[module] = half["A"], half["B"]
    if not pairs:
        refuse("the adapter is empty")
    return pairs


def lora_config(lora: Lora, modules: Iterable[str], base: Mapping[str, Tensor]) -> dict[str, Any]:
    """The adapter_config.json that we write: targets come from the tensors, everything else is fixed."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "inference_mode": True,
        "r": lora.r,
        "lora_alpha": lora.alpha,
        "use_rslora": lora.rslora,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "modules_to_save": None,
        "target_modules": _targets(set(modules), base),
    }


def _targets(modules: set[str], base: Mapping[str, Tensor]) -> list[str]:
    """Last names where those mean exactly these modules, whole names otherwise."""
    last = {module.rpartition(".")[2] for module in modules}
    meant = {name.removesuffix(".weight") for name in base if name.endswith(".weight")}
    return sorted(last if {name for name in meant if name.rpartition(".")[2] in last} == modules else modules)
