"""`runner prepare --agent NAME`: a coding agent's native binary, fetched by npm outside every sandbox, pinned.

Of what npm brings only one file is kept and mounted; no install script runs, no node is needed afterwards.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from isolation.clean import clean_line
from isolation.files import write_atomic
from runner import places
from runner.config import ConfigError


@dataclass(frozen=True, slots=True)
class Package:
    """An npm package at a version, and where its native binary lies below node_modules.

    ``companions`` lie beside it and are found beside it: some models' tools need them.
    """

    name: str
    version: str
    binary: str
    program: str
    companions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Installed:
    """A binary, the version that it says it is, and its companions by the name they must have."""

    binary: Path
    version: str
    companions: tuple[tuple[str, Path], ...] = ()


PACKAGES: Mapping[str, Package] = {
    "claude-code": Package(
        "@anthropic-ai/claude-code", "2.1.197", "@anthropic-ai/claude-code-linux-*/claude", "claude"
    ),
    "codex": Package(
        "@openai/codex", "0.171.0", "@openai/codex-linux-*/vendor/*/bin/codex", "codex", ("codex-code-mode-host",)
    ),
}
MINI = "mini-swe-agent"
# The library without litellm (our driver asks the model itself), and what the rest of it imports.
MINI_PINS = (
    "mini-swe-agent==2.4.6", "pydantic==2.14.4", "pydantic-core==2.50.5", "annotated-types==0.8.0",
    "typing-extensions==4.16.0", "typing-inspection==0.4.5", "jinja2==3.1.6", "markupsafe==3.0.4",
    "python-dotenv==1.2.4", "platformdirs==4.14.9", "rich==15.0.0", "markdown-it-py==4.3.0", "mdurl==0.1.2",
    "pygments==2.21.0",
)  # fmt: skip


def folder(agent: str) -> Path:
    """Where an agent's binary belongs."""
    return places.home() / "agents" / agent


def installed(agent: str) -> Installed:
    """The fetched binary. Raises ConfigError where it is not there."""
    manifest = folder(agent) / places.MANIFEST
    try:
        told = json.loads(manifest.read_text(encoding="utf-8"))
        binary = (folder(agent) / str(told["binary"])).resolve(strict=True)
        beside = {str(name): folder(agent) / str(file) for name, file in told["companions"].items()}
        found = tuple((name, path.resolve(strict=True)) for name, path in beside.items())
        return Installed(binary, str(told["said"]), found)
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{agent} is not there", where="--agent", do=f"Type: runner prepare --agent {agent}"
        ) from None


def prepare_agent(agent: str, version: str | None, say: Callable[[str], None]) -> Path:
    """Fetch an agent at the pinned (or named) version where it is not there yet. Raises ConfigError."""
    if agent == MINI:
        return _prepare_mini(version, say)
    if agent not in PACKAGES:
        known = ", ".join(sorted((*PACKAGES, MINI)))
        raise ConfigError(f"{agent!r} is not fetched", where="--agent", do=f"Fetched are: {known}")
    package = PACKAGES[agent]
    wanted = version or package.version
    target = folder(agent)
    if _version_there(target) == wanted:
        say(f"agent {agent}: {wanted} is ready ({target})")
        return target
    if shutil.which("npm") is None:
        raise ConfigError("npm is not there", where="runner prepare --agent", do="Install Node.js with npm")
    target.mkdir(parents=True, exist_ok=True)
    say(f"agent {agent}: fetching {package.name}@{wanted} (some hundred MB)")
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=target) as scratch:
        _npm(Path(scratch), f"{package.name}@{wanted}")
        found = _binary(Path(scratch) / "node_modules", package)
        said = _version_of(found, Path(scratch))
        kept = target / f"{package.program}-{wanted}"
        _keep(found, kept)
        beside = {name: target / f"{name}-{wanted}" for name in package.companions if (found.parent / name).is_file()}
        for name, path in beside.items():
            _keep(found.parent / name, path)
    about = {
        "package": package.name,
        "version": wanted,
        "said": said,
        "binary": kept.name,
        "companions": {name: path.name for name, path in beside.items()},
        "sha256": {path.name: _sha256(path) for path in (kept, *beside.values())},
    }
    write_atomic(target / places.MANIFEST, json.dumps(about, indent=1).encode() + b"\n")
    say(f"agent {agent}: {said} is ready ({target})")
    return target


def _prepare_mini(version: str | None, say: Callable[[str], None]) -> Path:
    """mini-swe-agent's packages in a folder of their own, for the model environment's Python."""
    pins = tuple(f"{MINI}=={version}" if version and pin.startswith(MINI) else pin for pin in MINI_PINS)
    wanted = pins[0].partition("==")[2]
    target = folder(MINI)
    kept = target / f"site-{wanted}"
    if _version_there(target, kind=Path.is_dir) == wanted:
        say(f"agent {MINI}: {wanted} is ready ({target})")
        return target
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=target) as scratch:
        pip = [str(places.model_python()), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        where = Path(scratch) / "site"
        done = subprocess.run(
            [*pip, "--no-deps", "--target", str(where), *pins], capture_output=True, text=True, errors="replace"
        )
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line.lower()] or ["pip failed"]
            raise ConfigError(clean_line(lines[0], 300), where="pip", do="Check the network and pip's configuration")
        shutil.rmtree(kept, ignore_errors=True)
        where.chmod(0o755)
        where.replace(kept)
    about = {"package": MINI, "version": wanted, "said": wanted, "binary": kept.name, "companions": {}}
    write_atomic(target / places.MANIFEST, json.dumps(about, indent=1).encode() + b"\n")
    say(f"agent {MINI}: {wanted} is ready ({target})")
    return target


def _keep(found: Path, kept: Path) -> None:
    found.chmod(0o755)
    found.replace(kept)


def _version_there(target: Path, kind: Callable[[Path], bool] = Path.is_file) -> str:
    try:
        told = json.loads((target / places.MANIFEST).read_text(encoding="utf-8"))
        return str(told["version"]) if kind(target / str(told["binary"])) else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _npm(prefix: Path, what: str) -> None:
    command = ["npm", "install", "--prefix", str(prefix), "--ignore-scripts", "--no-audit", "--no-fund", what]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line.lower()] or ["npm failed"]
        raise ConfigError(clean_line(lines[0], 300), where="npm", do="Check the network and npm's registry")


def _binary(modules: Path, package: Package) -> Path:
    """The native binary; the one for glibc where there are two."""
    found = sorted(modules.glob(package.binary), key=lambda path: ("musl" in path.parts[-2], path))
    if not found:
        raise ConfigError(
            f"no binary for this machine in {package.name}", where="npm", do="Linux on x64 or arm64 has one"
        )
    return found[0]


def _version_of(binary: Path, home: Path) -> str:
    """What the binary says of itself, asked in an empty home without any variable."""
    try:
        env = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=120, env=env, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"the binary does not run ({error})", where=str(binary), do="Report this") from None
    return clean_line(done.stdout.splitlines()[-1] if done.stdout else "", 80)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
