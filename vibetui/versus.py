"""Two candidates beside each other: which problems flipped, how sure that is, and what their components differ in."""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Sequence

from runner.record.describe import count, delta_text, number, score_text
from runner.record.evaluation import compared
from runner.record.rundir import RunDir
from runner.record.state import CandidateState
from vibetui.detail import patch_lines, problems_of, safe_name
from vibetui.files import read_inside
from vibetui.text import Line, line, one_line
from vibetui.theme import Role

_FILE = 256 << 10  # bytes of a text that are compared line by line
_FILE_LINES = 4000  # difflib is quadratic at worst
_FILES = 200
_PATCH_LINES = 16_000
_DATA = 64 << 20
_SAMPLES = 5
_SHA = re.compile(r"[0-9a-f]{64}")


def verdict_lines(run: RunDir, one: CandidateState, other: CandidateState) -> list[Line]:
    """``one`` against ``other`` on validation: scores, flips and whether that is more than chance."""
    lines = [
        line((f"{one_line(one.id, 12):<10}", "accent"), score_text(one.validation)),
        line((f"{one_line(other.id, 12):<10}", "muted"), (score_text(other.validation), "muted")),
    ]
    if one.validation is None or other.validation is None:
        return [*lines, (), line(("one of them has no validation", "warn"))]
    found = compared(problems_of(run, other), problems_of(run, one), one.validation.samples)
    if found is None:
        return [*lines, (), line(("their problems cannot be compared: the rows are not in this folder", "warn"))]
    sure = found.p < 0.05
    role: Role = ("good" if found.delta.value > 0 else "bad") if sure else "warn"
    word = "more than chance" if sure else f"within noise of {one_line(other.id, 12)}"
    lines += [
        line((f"{'Δ':<10}", "muted"), (delta_text(found.delta), role), (f"   {word} (p {_p(found.p)})", role)),
        (),
        line(
            ("problems  ", "muted"), (f"{len(found.gained)} gained", "good"), ("   ", "text"),
            (f"{len(found.lost)} lost", "bad"), (f"   {found.same} same", "muted"),
        ),
    ]  # fmt: skip
    if found.gained:
        lines += [(), line(("gained", "title")), *_names(found.gained, "good")]
    if found.lost:
        lines += [(), line(("lost", "title")), *_names(found.lost, "bad")]
    return lines


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else number(value, 3)


def _names(names: Sequence[str], role: Role) -> list[Line]:
    shown = [f"{one_line(name, 16):<10}" for name in names]
    return [line((" ".join(shown[i : i + 6]), role)) for i in range(0, len(shown), 6)]


def component_lines(run: RunDir, one: CandidateState, other: CandidateState, component: str) -> list[Line]:
    """How a component of ``one`` differs from that of ``other``, from the store; the work is bounded."""
    new, old = getattr(one, component), getattr(other, component)
    if new == old:
        return [line((f"both have the same {component}", "muted"))]
    after, before = _manifest(run, new), _manifest(run, old)
    if after is None or before is None:
        return [line((f"the {component} is not in this folder's store", "warn"))]
    changed = [path for path in sorted(after.keys() | before.keys()) if after.get(path) != before.get(path)]
    if component == "data":
        return [part for path in changed[:_FILES] for part in _data(run, path, before.get(path), after.get(path))]
    patch: list[str] = []
    for n, path in enumerate(changed):
        if n >= _FILES or len(patch) > _PATCH_LINES:
            patch.append(f"# {count(len(changed) - n)} more files differ; not compared")
            break
        patch += _code(run, path, before.get(path), after.get(path))
    return patch_lines("\n".join(patch))


def _manifest(run: RunDir, snapshot: str) -> dict[str, str] | None:
    """Files of a snapshot by path, as the store names them."""
    raw = read_inside(run.path, f"store/manifests/{snapshot}.json", 32 << 20) if safe_name(snapshot) else None
    try:
        files = json.loads(raw or b"")["files"]
        return {str(path): str(sha) for path, sha, _ in files}
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _object(run: RunDir, sha: str | None, limit: int) -> bytes | None:
    """The content of a file; empty for one that is not there, None for one that cannot be shown."""
    if sha is None:
        return b""
    if not _SHA.fullmatch(sha):
        return None
    raw = read_inside(run.path, f"store/objects/{sha[:2]}/{sha}", limit + 1)
    return None if raw is None or len(raw) > limit else raw


def _code(run: RunDir, path: str, old: str | None, new: str | None) -> list[str]:
    name = one_line(path, 120)
    before, after = _object(run, old, _FILE), _object(run, new, _FILE)
    if before is None or after is None or b"\0" in before + after:
        return [f"--- a/{name}", f"+++ b/{name}", "# not compared: too big, not text, or not in this folder"]
    rows = [side.decode("utf-8", "replace").split("\n") for side in (before, after)]
    if max(map(len, rows)) > _FILE_LINES:
        return [f"--- a/{name}", f"+++ b/{name}", f"# not compared: more than {_FILE_LINES} lines"]
    return list(difflib.unified_diff(rows[0], rows[1], f"a/{name}", f"b/{name}", lineterm=""))


def _data(run: RunDir, path: str, old: str | None, new: str | None) -> list[Line]:
    before, after = _object(run, old, _DATA), _object(run, new, _DATA)
    title = line((one_line(path, 120), "title"))
    if before is None or after is None:
        return [title, line(("not compared: too big, or not in this folder", "muted")), ()]
    was, now = Counter(before.split(b"\n")), Counter(after.split(b"\n"))
    came, went = now - was, was - now
    lines = [
        title,
        line((f"+{count(came.total())} examples", "add"), ("   ", "text"), (f"−{count(went.total())}", "del")),
    ]
    lines += [line(("+ " + _start(raw), "add")) for raw in list(came)[:_SAMPLES]]
    lines += [line(("- " + _start(raw), "del")) for raw in list(went)[:_SAMPLES]]
    return [*lines, ()]


def _start(raw: bytes) -> str:
    return raw[:4000].decode("utf-8", "replace")
