"""The gate: reads what a trainer left, and writes the accepted weights anew. Runs inside its own sandbox.

    python gate_check.py '{"parents": [{"dir": "/parents/0", "format": "adapter"}], "in": …, "base": …, "out": …}'

Prints one JSON object: ``{"accepted": …, "refused": …, …}``, or ``{"error": …}`` when our own side failed. Only
standard library and numpy. Tensors pass through in pieces, so memory stays far below a model's size, and what is
written is what was checked: it is not read a second time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np  # type: ignore[import-not-found,unused-ignore]

if TYPE_CHECKING:
    from grader.inside import gate_files
    from grader.inside.gate_files import RefusedError, Tensor, refuse
else:  # the folder holds just these two files, and no package of ours
    import gate_files
    from gate_files import RefusedError, Tensor, refuse

PIECE = 1 << 21
"""Elements per piece: 16 MiB as float64."""

_COMPANIONS = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "chat_template.jinja", "vocab.json", "merges.txt",
)  # fmt: skip
_BITS = {"BF16": ("<u2", 0x7F80), "F16": ("<u2", 0x7C00), "F32": ("<u4", 0x7F800000)}
_SAME = 1e-12


class OursError(Exception):
    """The base or the disk failed, not the checkpoint."""


@dataclass(slots=True)
class Norms:
    """Squared Frobenius norms by tensor: of the base, and of the change."""

    base: dict[str, float] = field(default_factory=dict)
    change: dict[str, float] = field(default_factory=dict)

    def report(self) -> dict[str, Any]:
        """Relative norms: overall, and the largest of one tensor. Where the base's is 0, the whole base's stands in."""
        whole = math.sqrt(math.fsum(self.base.values())) or 1.0
        each = {
            name: math.sqrt(max(0.0, square)) / (math.sqrt(self.base.get(name, 0.0)) or whole)
            for name, square in self.change.items()
        }
        largest = max(each, key=lambda name: each[name], default="")
        return {
            "delta_norm": math.sqrt(max(0.0, math.fsum(self.change.values()))) / whole,
            "delta_norm_max": each.get(largest, 0.0),
            "delta_norm_max_tensor": largest if each.get(largest) else "",
        }


def values(data: bytes, dtype: str) -> Any:
    """The numbers in ``data`` as float64."""
    if dtype == "BF16":
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").astype("<f8")
    return np.frombuffer(data, {"F16": "<f2", "F32": "<f4"}[dtype]).astype("<f8")


def check_finite(data: bytes, tensor: Tensor) -> None:
    """Refuses NaN and Infinity, by the bits of the exponent."""
    kind, mask = _BITS[tensor.dtype]
    if bool(np.any((np.frombuffer(data, kind) & mask) == mask)):
        refuse("holds NaN or Infinity", tensor.name)


def pieces(tensor: Tensor, elements: int = PIECE) -> Iterator[bytes]:
    """The bytes of a tensor, ``elements`` at a time."""
    step = elements * gate_files.WIDTHS[tensor.dtype]
    for begin in range(tensor.begin, tensor.end, step):
        yield gate_files.read_exact(tensor.fd, min(step, tensor.end - begin), begin)


def whole(tensor: Tensor) -> Any:
    """A LoRA matrix as float64, in its shape."""
    return values(b"".join(pieces(tensor)), tensor.dtype).reshape(tensor.shape)


class Writer:
    """A new safetensors file: our header, then the tensors in the given order, hashed on the way."""

    def __init__(self, path: Path, tensors: Sequence[Tensor]) -> None:
        self._file = path.open("xb")
        self._hash = hashlib.sha256()
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        at = 0
        for tensor in tensors:
            end = at + tensor.end - tensor.begin
            header[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [at, end]}
            at = end
        text = json.dumps(header, separators=(",", ":")).encode("ascii")
        text += b" " * (-len(text) % 8)
        self.write(len(text).to_bytes(8, "little") + text)

    def write(self, data: bytes) -> None:
        with _ours("write the accepted weights"):
            self._file.write(data)
        self._hash.update(data)

    def close(self) -> str:
        """Flushes to the disk; the sha256 of the file."""
        with _ours("write the accepted weights"):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        return self._hash.hexdigest()


@contextlib.contextmanager
def _ours(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OursError(f"cannot {what} ({error.strerror})") from None


def weights_in(folder: Path, what: str) -> dict[str, Tensor]:
    """The tensors of a folder of ours (the base, a parent), by name."""
    with _ours(f"read {what}"):
        files = sorted(folder.glob("*.safetensors"))
        opened = [(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path.name) for path in files]
    try:
        found = gate_files.merged(gate_files.read_header(fd, name) for fd, name in opened)
    except RefusedError as error:
        raise OursError(f"{what} cannot be used: {error}") from None
    if not found:
        raise OursError(f"{what} holds no safetensors")
    return found


def check(request: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of an accepted checkpoint; RefusedError or OursError otherwise."""
    source, base_dir, out = Path(request["in"]), Path(request["base"]), Path(request["out"])
    base = weights_in(base_dir, "the base model")
    files = gate_files.open_all(str(source))
    _check_texts(files, base_dir)
    names = [name for name in files if name.endswith(".safetensors")]
    if not names:
        refuse("no .safetensors in --out: save an adapter (adapter_model.safetensors) or full weights there")
    adapters = [name for name in names if name.startswith("adapter_model")]
    if adapters and len(adapters) != len(names):
        refuse("holds an adapter and full weights; leave one of them", adapters[0])
    _check_size(files, names, base)
    limit = (1 << 20) + 2048 * len(base)
    tensors = gate_files.merged(gate_files.read_header(files[name], name, limit) for name in names)
    if adapters:
        return _adapter(tensors, files, base, request["parents"], out)
    if "adapter_config.json" in files:
        refuse("there is an adapter_config.json but no adapter_model.safetensors")
    return _full(tensors, base, base_dir, request["parents"], out)


def _check_texts(files: Mapping[str, int], base_dir: Path) -> None:
    if "config.json" in files:
        gate_files.check_no_code(gate_files.read_json(files["config.json"], "config.json"), "config.json")
    if "tokenizer.json" in files:
        with _ours("read the base's tokenizer"):
            own = (base_dir / "tokenizer.json").read_bytes()
        size = os.fstat(files["tokenizer.json"]).st_size
        if size == len(own) and gate_files.read_exact(files["tokenizer.json"], size, 0) == own:
            return
        theirs = gate_files.read_json(files["tokenizer.json"], "tokenizer.json", 2 * len(own) + (1 << 20))
        if not gate_files.same_tokenizer(theirs, json.loads(own)):
            refuse("the tokenizer was changed; train with the base's own", "tokenizer.json")


def _check_size(files: Mapping[str, int], names: Sequence[str], base: Mapping[str, Tensor]) -> None:
    """Before anything is read: no more bytes than the base (and a tied head) has as float32, and a header each."""
    size = sum(os.fstat(files[name]).st_size for name in names)
    most = 8 * sum(tensor.size for tensor in base.values()) + (2 << 20) * len(names)
    if size > most:
        refuse(f"{size} bytes of weights are more than this model can have", names[0])


def _full(
    tensors: dict[str, Tensor], base: Mapping[str, Tensor], base_dir: Path, parents: Sequence[Any], out: Path
) -> dict[str, Any]:
    _drop_tied_head(tensors, base, base_dir)
    for name in sorted(set(base) ^ set(tensors)):
        refuse("is missing" if name in base else "is not a tensor of the base", name)
    for name, tensor in tensors.items():
        if tensor.shape != base[name].shape:
            refuse(f"has shape {list(tensor.shape)}, the base has {list(base[name].shape)}", name)
    same = [weights_in(Path(one["dir"]), "a parent") for one in parents if one["format"] == "full"]
    ordered = [tensors[name] for name in base]
    writer, norms = Writer(out / "model.safetensors", ordered), Norms()
    for tensor in ordered:
        norms.base[tensor.name], norms.change[tensor.name] = _pass(tensor, base[tensor.name], writer)
        same = [parent for parent in same if _equal(tensor, parent.get(tensor.name))]
    digest = writer.close()
    _copy_companions(base_dir, out)
    no_change = not any(norms.change.values()) or bool(same)
    return _facts("full", {"model.safetensors": digest}, no_change, norms)


def _drop_tied_head(tensors: dict[str, Tensor], base: Mapping[str, Tensor], base_dir: Path) -> None:
    """A head tied to the embedding may be saved or not, but must equal it: the engine ties it again."""
    head, extra = "lm_head.weight", set(tensors) - set(base)
    if head in base and head not in tensors and _tied(base_dir):
        embedding = next((name for name in tensors if name.endswith("embed_tokens.weight")), None)
        if embedding:
            twin = tensors[embedding]
            tensors[head] = Tensor(head, twin.dtype, twin.shape, twin.fd, twin.begin, twin.end)
    if extra == {head} and _tied(base_dir):
        embedding = next((name for name in base if name.endswith("embed_tokens.weight")), "")
        if not _equal(tensors[head], tensors.get(embedding)):
            refuse("differs from the embedding it is tied to", head)
        del tensors[head]


def _tied(base_dir: Path) -> bool:
    with _ours("read the base's config.json"):
        config = json.loads((base_dir / "config.json").read_bytes())
    return bool(config.get("tie_word_embeddings", config.get("text_config", {}).get("tie_word_embeddings", False)))


def _pass(tensor: Tensor, own: Tensor, writer: Writer) -> tuple[float, float]:
    """Copies a tensor; the squared norms of the base's and of the difference."""
    base_square = change_square = 0.0
    for data, base_data in zip(pieces(tensor), pieces(own), strict=True):
        check_finite(data, tensor)
        writer.write(data)
        before = values(base_data, own.dtype)
        change = values(data, tensor.dtype) - before
        base_square += float(np.dot(before, before))
        change_square += float(np.dot(change, change))
    return base_square, change_square


def _equal(one: Tensor, other: Tensor | None) -> bool:
    """Whether two tensors hold the same numbers."""
    if other is None or one.shape != other.shape:
        return False
    return all(
        (one.dtype == other.dtype and first == second)
        or bool(np.array_equal(values(first, one.dtype), values(second, other.dtype)))
        for first, second in zip(pieces(one), pieces(other), strict=True)
    )


def _adapter(
    tensors: dict[str, Tensor], files: Mapping[str, int], base: Mapping[str, Tensor], parents: Sequence[Any], out: Path
) -> dict[str, Any]:
    if "adapter_config.json" not in files:
        refuse("adapter_config.json is missing")
    lora = gate_files.read_lora(gate_files.read_json(files["adapter_config.json"], "adapter_config.json"))
    pairs = gate_files.lora_pairs(tensors, base, lora.r)
    ordered = [tensors[name] for name in sorted(tensors)]
    writer = Writer(out / "adapter_model.safetensors", ordered)
    for tensor in ordered:
        for data in pieces(tensor):
            check_finite(data, tensor)
            writer.write(data)
    norms = Norms(base={name: _square(tensor) for name, tensor in base.items()})
    for module, pair in pairs.items():
        norms.change[module + ".weight"] = lora.scale**2 * _inner(pair, pair)
    text = json.dumps(gate_files.lora_config(lora, pairs, base), indent=2, sort_keys=True).encode("ascii")
    with _ours("write the adapter's configuration"):
        _write(out / "adapter_config.json", text)
    digests = {
        "adapter_config.json": hashlib.sha256(text).hexdigest(),
        "adapter_model.safetensors": writer.close(),
    }
    same = any(_same_adapter(pairs, lora.scale, norms, one, base) for one in parents if one["format"] == "adapter")
    return _facts("adapter", digests, same or not any(norms.change.values()), norms)


def _square(tensor: Tensor) -> float:
    return math.fsum(float(np.dot(part, part)) for part in (values(data, tensor.dtype) for data in pieces(tensor)))


def _inner(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> float:
    """⟨B₁A₁, B₂A₂⟩ through r×r matrices, without ever making a product of the layer's size."""
    return float(np.sum((whole(one[1]).T @ whole(other[1])) * (whole(one[0]) @ whole(other[0]).T)))


def _same_adapter(
    pairs: Mapping[str, tuple[Tensor, Tensor]], scale: float, norms: Norms, parent: Any, base: Mapping[str, Tensor]
) -> bool:
    """Whether the parent's adapter changes every layer alike, whatever its rank or factors are."""
    folder = Path(parent["dir"])
    try:
        lora = gate_files.read_lora(json.loads((folder / "adapter_config.json").read_bytes()))
        others = gate_files.lora_pairs(weights_in(folder, "a parent"), base, lora.r)
    except (RefusedError, OSError, ValueError) as error:
        raise OursError(f"a parent cannot be read: {error}") from None
    for module in set(pairs) | set(others):
        mine = norms.change.get(module + ".weight", 0.0)
        theirs = lora.scale**2 * _inner(others[module], others[module]) if module in others else 0.0
        both = _inner(pairs[module], others[module]) if module in pairs and module in others else 0.0
        if mine + theirs - 2 * scale * lora.scale * both > _SAME * (mine + theirs):
            return False
    return True


def _facts(kind: str, digests: Mapping[str, str], no_change: bool, norms: Norms) -> dict[str, Any]:
    listing = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
    digest = hashlib.sha256(listing.encode("ascii")).hexdigest()
    return {"accepted": True, "format": kind, "sha256": digest, "no_change": no_change, **norms.report()}


def _copy_companions(base_dir: Path, out: Path) -> None:
    """Configuration, tokenizer and template are the base's, whatever the trainer wrote."""
    with _ours("copy the base's configuration"):
        for name in _COMPANIONS:
            if (base_dir / name).is_file():
                _write(out / name, (base_dir / name).read_bytes())


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def main() -> None:
    """One request in the arguments, one JSON object on stdout."""
    try:
        answer = check(json.loads(sys.argv[1]))
    except RefusedError as refused:
        answer = {"accepted": False, "refused": str(refused)}
    except OursError as error:
        answer = {"error": str(error)}
    except Exception as error:  # whatever hostile bytes could still provoke is a refusal
        answer = {"accepted": False, "refused": f"the checkpoint could not be checked ({type(error).__name__})"}
    sys.stdout.write(json.dumps(answer, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
