"""What the walls cost an evaluation: problems a minute through the grader against the same batches in one process.

Through: vault, engine, gateway and harness each in their sandbox, the task's own H0. In one process: the engine's own
generating code, given the very prompts that the evaluation sent, sorted and batched alike. Run as an ordinary user, or
``python -P -m isolation.privilege -- python scripts/bench_eval.py [MODEL ...]``. Exits 1 when a ratio is too low.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.protocol import EngineConfig, Evaluate, GraderSetup, ModelRef
from grader.service import Service
from isolation.sandbox import use_pidfd_children
from runner.places import home, model_env
from tasks.registry import load_spec

ROOT = Path(__file__).resolve().parents[1]
TARGET = 0.8
PLACES = {"tiny": ROOT / "tasks" / "models" / "tiny", "smollm2-135m": home() / "models" / "smollm2-135m"}


@dataclass(frozen=True, slots=True)
class Measured:
    """One model: requests a minute both ways, and how many texts were the same."""

    through: float
    inside: float
    same: int
    total: int

    @property
    def ratio(self) -> float:
        """Through the walls over in one process."""
        return self.through / self.inside


def setup(base: Path, root: Path, threads: int, dtype: str) -> GraderSetup:
    """The mini problems at the task's own decoding and limits."""
    chosen = load_spec("aime").sets["mini"]
    for name in ("models/m00/weights", "logs", "r"):
        (root / name).mkdir(parents=True)
    return GraderSetup.model_validate(
        {
            "id": "setup", "task": "aime", "problems": "mini", "validation": None, "hidden": None,
            "samples": 1, "seed": 0,
            "decoding": chosen.decoding, "limits": chosen.limits, "model_env": str(model_env()), "base_dir": str(base),
            "engine": EngineConfig.model_validate({"threads": threads, "dtype": dtype}),
            "models_dir": str(root / "models"), "runtime_dir": str(root / "r"), "log_dir": str(root / "logs"),
            "cgroup": os.environ.get("VIBETRAINING_CGROUP"),
        }
    )  # fmt: skip


async def evaluate(given: GraderSetup, root: Path) -> float:
    """Seconds of one evaluation on a warm grader; its files stay in ``root``/e001."""
    service = Service(given, lambda notice: print(f"  {notice.level}: {notice.what} {notice.detail}"))
    await service.start()
    try:
        harness = ROOT / "tasks" / "aime" / "workspace" / "harness"
        request = Evaluate(
            id="e", eval="e001", candidate="c00", model=ModelRef(id="m00", format="base"),
            harness_dir=str(harness), out_dir=str(root / "e001"),
        )  # fmt: skip
        started = time.monotonic()
        await service.evaluate(request, lambda *_: None)
        return time.monotonic() - started
    finally:
        await service.close()


def calls(folder: Path) -> list[dict[str, Any]]:
    """The model calls of an evaluation, by problem."""
    lines = [line for path in sorted(folder.glob("trajectories/*.jsonl")) for line in path.read_text().splitlines()]
    return [step for step in map(json.loads, lines) if step["kind"] == "call"]


def in_one_process(given: GraderSetup, asked: list[dict[str, Any]], root: Path) -> dict[str, Any]:
    """The same requests through the engine's own code, without walls; its figures and texts."""
    (root / "code").mkdir()
    (root / "code" / "inside").symlink_to(ROOT / "grader" / "engines" / "inside")
    bodies = [{"messages": json.loads(step["prompt"])} for step in asked]
    (root / "asked.jsonl").write_text("".join(json.dumps(body) + "\n" for body in bodies))
    engine = given.engine
    argv = [f"{given.model_env}/bin/python", "-P", "-m", "inside.transformers_server", "--base", given.base_dir]
    argv += ["--dtype", engine.dtype, "--cap", str(engine.wave), "--threads", str(engine.threads)]
    argv += ["--bench", str(root / "asked.jsonl"), "--max-tokens", str(given.decoding.max_tokens)]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(root), "PYTHONPATH": str(root / "code"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(argv, env=env, cwd=root, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(name: str, threads: int, dtype: str) -> Measured:
    """One model, first through the walls, then in one process."""
    with tempfile.TemporaryDirectory(prefix="vtb-") as folder:
        root = Path(folder)
        given = setup(PLACES[name], root, threads, dtype)
        seconds = asyncio.run(evaluate(given, root))
        asked = calls(root / "e001")
        found = in_one_process(given, asked, root)
        same = sum(step["reply"] == text for step, text in zip(asked, found["texts"], strict=True))
        return Measured(60 * len(asked) / seconds, found["per_minute"], same, len(asked))


def main() -> int:
    """Every model that is at hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[name for name, place in PLACES.items() if place.is_dir()])
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--dtype", default="bfloat16")
    chosen = parser.parse_args()
    use_pidfd_children()
    missed = False
    for name in chosen.models:
        found = measure(name, chosen.threads, chosen.dtype)
        print(
            f"{name}: {found.through:.0f} problems/min through the walls, {found.inside:.0f} in one process, "
            f"ratio {found.ratio:.2f} (target {TARGET} for smollm2-135m), same texts {found.same} of {found.total}"
        )
        missed = missed or (name != "tiny" and found.ratio < TARGET)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
