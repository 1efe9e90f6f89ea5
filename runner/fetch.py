"""What `runner prepare` runs with the model environment's python: convert a GGUF model, fetch a model or a data file.

    python runner/fetch.py gguf FILE OUT | model REPO REVISION OUT | rows REPO REVISION FILE OUT

A single file: the standard library and that environment, nothing of ours. The last line of stdout is a JSON object; a
failure is one line on stderr and exit code 1.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
MODEL_FILES = ["*.safetensors", "*.json", "*.txt", "*.jinja", "LICENSE*", "README.md"]


def gguf(file: str, out: str) -> dict[str, Any]:
    """A quantised GGUF file as a bfloat16 model folder with its tokenizer."""
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    path = Path(file)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    # What was read is no longer quantised; later versions of transformers refuse to save it while it says so.
    model.config.__dict__.pop("quantization_config", None)
    model.hf_quantizer, model.is_quantized = None, False
    model.to(torch.bfloat16).save_pretrained(out)
    tokenizer.save_pretrained(out)
    return {"parameters": sum(tensor.numel() for tensor in model.parameters())}


def model(repo: str, revision: str, out: str) -> dict[str, Any]:
    """A model repository's weights, configuration and tokenizer; goes on where an earlier call was cut."""
    hub = importlib.import_module("huggingface_hub")
    commit = hub.HfApi().model_info(repo, revision=revision).sha
    hub.snapshot_download(repo, revision=commit, local_dir=out, allow_patterns=MODEL_FILES)
    return {"revision": commit}


def rows(repo: str, revision: str, file: str, out: str) -> dict[str, Any]:
    """One file of a dataset repository as JSON lines, columns unchanged."""
    hub = importlib.import_module("huggingface_hub")
    commit = hub.HfApi().dataset_info(repo, revision=revision).sha
    path = Path(hub.hf_hub_download(repo, file, repo_type="dataset", revision=commit))
    if path.suffix == ".parquet":
        table = importlib.import_module("pyarrow.parquet").read_table(path)
        lines = [json.dumps(row, ensure_ascii=False, default=str) for row in table.to_pylist()]
    else:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    Path(out).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return {"revision": commit, "rows": len(lines)}


COMMANDS: dict[str, Callable[..., dict[str, Any]]] = {"gguf": gguf, "model": model, "rows": rows}


def main() -> int:
    try:
        print(json.dumps(COMMANDS[sys.argv[1]](*sys.argv[2:])), flush=True)
    except Exception as error:  # one line for `runner prepare`, whatever a download or a conversion raises
        reason = " ".join(str(error).split()) or "no reason given"
        print(f"{type(error).__name__}: {reason[:300]}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
