"""The agent's hands: write a design into /lab, and call ``vibe``."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import arithmetic
from design import Design

ROOT = Path("/lab")
BASE = Path("/models/m00/weights")
GOES_ON = 3  # vibe's exit code for a job that takes longer than a command waits
COMPONENTS = ("data", "trainer", "harness")
HERE = Path(__file__).resolve().parent


class Refused(Exception):
    """``vibe`` said no, or the job failed; the text says why."""


class Unanswered(Refused):
    """The desk was gone before it answered: nothing is known, and the same question may be asked again."""


def say(text: str, tool: str = "") -> None:
    """One line of the transcript."""
    print(json.dumps({"say": text, "tool": tool}), flush=True)


class Lab:
    """What can be edited here, and how a design becomes files."""

    def __init__(self, recipe: tuple[str, ...] | None = None, root: Path = ROOT) -> None:
        """``recipe``: the keys of the recipe that may be set where nothing else of the trainer may; None: all of it."""
        self.root = root
        self.kept = root / "home" / "original"
        self.recipe = recipe
        if not self.kept.exists():  # whole or not at all: the agent may be killed here
            building = self.kept.with_name("original.part")
            shutil.rmtree(building, ignore_errors=True)
            for name in COMPONENTS:
                shutil.copytree(self.root / name, building / name)
            building.rename(self.kept)
        self.writable = tuple(name for name in COMPONENTS if os.access(self.root / name, os.W_OK))
        self.instruction = self._instruction()

    def _rows(self) -> list[dict[str, str]]:
        rows = []
        for path in sorted((self.kept / "data").glob("*.jsonl")):
            rows += [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        return rows

    def _instruction(self) -> str:
        """What follows the question in a prompt: the common last line of the pool's prompts."""
        rows = self._rows()
        return rows[0]["prompt"].rpartition("\n")[2] if rows else ""

    def write(self, design: Design) -> None:
        """Lay out all writable components for ``design``; equal designs give equal bytes."""
        if "data" in self.writable:
            self._write_data(design)
        if "trainer" in self.writable:
            self._write_trainer(design)
        if "harness" in self.writable:
            self._write_harness(design)

    def _write_data(self, design: Design) -> None:
        rows = self._bank() if design.rows == "bank" else self._rows()
        if design.rows == "filtered":
            rows = [row for row in rows if arithmetic.consistent(row["completion"])]
        if design.notation == "calculator":
            rows = [row | {"completion": arithmetic.to_calculator(row["completion"])} for row in rows]
        seen = design.skip % max(1, len(rows))
        rows = rows[seen:] + rows[:seen]
        if design.examples and len(rows) > design.examples:
            rows = rows[: design.examples]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        for path in (self.root / "data").glob("*.jsonl"):
            path.unlink()
        (self.root / "data" / "train.jsonl").write_text(text, encoding="utf-8")

    def _bank(self) -> list[dict[str, str]]:
        rows = []
        for path in sorted(Path("/sources").glob("*.jsonl")):
            for line in path.read_text(encoding="utf-8").splitlines():
                item = json.loads(line)
                solution = str(item.get("solution", ""))
                if item.get("question") and arithmetic.consistent(solution):
                    rows.append({"prompt": f"{item['question']}\n{self.instruction}", "completion": solution})
        return rows or self._rows()

    @property
    def base_bytes(self) -> int:
        """The size of the base model's files."""
        return sum(path.stat().st_size for path in BASE.glob("*.safetensors"))

    @property
    def batch(self) -> int:
        """Examples per step of the recipe."""
        return int(_recipe((self.kept / "trainer" / "recipe.toml").read_text(encoding="utf-8"), "batch_size"))

    def _write_trainer(self, design: Design) -> None:
        text = (self.kept / "trainer" / "recipe.toml").read_text(encoding="utf-8")
        if design.learning_rate != 1.0:
            rate = float(_recipe(text, "learning_rate")) * design.learning_rate
            text = _with(text, "learning_rate", f"{rate:.6g}")
        if design.epochs:
            text = _with(text, "epochs", f"{design.epochs:.6g}")
        if design.batch:
            text = _with(text, "batch_size", str(design.batch))
        if design.steps:
            text = _with(text, "max_steps", str(design.steps))
        if design.after:
            text = _with(text, "start_from", json.dumps("parent"))
        if method := "merge" if design.merge else design.method:
            text = _with(text, "method", json.dumps(method))
        (self.root / "trainer" / "recipe.toml").write_text(text, encoding="utf-8")

    def _write_harness(self, design: Design) -> None:
        source = (self.kept / "harness" / "main.py").read_text(encoding="utf-8")
        if design.tool or design.shots:
            source = (HERE / "improved_harness.py").read_text(encoding="utf-8")
            source = source.replace("TOOL = True", f"TOOL = {design.tool}", 1)
            source = source.replace("SHOTS = 0", f"SHOTS = {design.shots}", 1)
        (self.root / "harness" / "main.py").write_text(source, encoding="utf-8")


def _recipe(text: str, key: str) -> str:
    match = re.search(rf"(?m)^{key}\s*=\s*([^#\n]+)", text)
    if match is None:
        raise Refused(f"recipe.toml has no {key}")
    return match[1].strip()


def _with(text: str, key: str, value: str) -> str:
    _recipe(text, key)
    return re.sub(rf"(?m)^({key}\s*=\s*)[^#\n]*?(\s*(?:#.*)?)$", lambda m: f"{m[1]}{value}{m[2]}", text, count=1)


def vibe(*words: str) -> dict[str, object]:
    """Run one ``vibe`` command with --json to its end, however long its job takes; returns its last line. Raises
    Refused with vibe's own words."""
    code, result, why = _called(*words)
    while code == GOES_ON and "job" in result:
        code, result, why = _called("wait", str(result["job"]))
    if code == 1 and result.get("type") != "answer":
        raise Unanswered(why or f"vibe {words[0]} was not answered")
    if code != 0:
        raise Refused(str(result.get("text") or why or f"vibe {words[0]} ended with {code}"))
    return result


def _called(*words: str) -> tuple[int, dict[str, object], str]:
    """Exit code, last line and stderr of one command. An answer that is no object is exit code 1."""
    done = subprocess.run(["vibe", words[0], "--json", *words[1:]], capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    try:
        result = json.loads(lines[-1]) if lines else {}
    except json.JSONDecodeError:
        result = {}
    code = done.returncode if isinstance(result, dict) else 1
    return code, result if isinstance(result, dict) else {}, done.stderr.strip()
