"""Kinds of input, not cases: what any bytes, trees, requests and texts make of the code that reads them.

Each family runs some hundred inputs in the test command and 100,000 with ``--long``. What a family found once is one of
its examples.
"""

from __future__ import annotations

import base64
import codecs
import contextlib
import gzip
import html
import io
import json
import os
import re
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attack_kit import problems
from fuzz_kit import JSON, family
from hypothesis import strategies as st
from pydantic import ValidationError

from grader.overlap import Index
from grader.protocol import Request
from grader.request import Refused, chat_request, text_request
from grader.server import _REQUEST
from grader.strict import MAX_DEPTH, StrictError, parse_object
from isolation.inside import intake, keeper
from isolation.intake import check_path
from isolation.problem import IntakeError
from runner.report.markdown import escape
from runner.research.contamination import described
from runner.research.desk import prompt_row
from runner.research.jobs import Refusal
from runner.research.verbs import ORDER
from tasks.spec import Decoding

INSIDE = str(Path(__file__).parents[2] / "grader" / "inside")
QUESTIONS = [problem for problem in problems("validation") if len(problem.question) > 60]
INDEX = Index(problems("validation"))


@pytest.fixture(scope="module", autouse=True)
def _reader_path() -> Any:
    sys.path.insert(0, INSIDE)
    yield
    sys.path.remove(INSIDE)


# -- files taken in


NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=12).filter(
    lambda name: name not in (".", "..") and len(name.encode()) < 200
)
KINDS = st.sampled_from(["file", "file", "file", "folder", "link", "fifo", "sparse"])


@family(80, st.lists(st.tuples(st.lists(NAMES, min_size=1, max_size=3), KINDS), max_size=6))
def test_a_tree_is_read_as_plain_files_or_refused_whole(entries: list[tuple[list[str], str]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        secret = Path(place, "secret")
        secret.write_text("canary")
        root = Path(place, "root")
        root.mkdir()
        for parts, kind in entries:
            with contextlib.suppress(OSError):  # two entries may want one name
                build(root.joinpath(*parts), kind, secret)
        handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for path, fd, info in intake.walk(handle, 20):
                assert stat.S_ISREG(info.st_mode) and os.fstat(fd).st_ino != secret.stat().st_ino
                check_path(path)
                assert (root / path).lstat().st_ino == info.st_ino
        except (intake.Refused, IntakeError):
            assert any(kind != "file" for _, kind in entries) or entries
        finally:
            os.close(handle)


def build(path: Path, kind: str, secret: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(secret)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        with path.open("xb") as stream:
            stream.truncate(1 << 40 if kind == "sparse" else 3)


# -- sockets and JSON


LINES = st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode())
SCALAR = st.none() | st.integers() | st.text(max_size=8) | st.lists(st.text(max_size=4), max_size=2)
VERBS = st.fixed_dictionaries(
    {"verb": st.sampled_from(["status", "train", "validate", "sample", "wait", "cancel", "select", "finish", "x"])},
    optional=dict.fromkeys(("model", "parents", "parent", "message", "n", "job", "candidate", "detach"), SCALAR),
)


@family(
    400, LINES | VERBS.map(lambda value: json.dumps(value).encode()), cases=(b"[" * 60_000, b'{"a":1e999}', b"\xff")
)
def test_a_line_at_the_desk_is_an_order_or_malformed(line: bytes) -> None:
    try:
        order = ORDER.validate_python(parse_object(line, max_depth=8))
    except (StrictError, ValidationError):
        return
    for name in ("model", "parent", "candidate", "job"):
        value = getattr(order, name, None)
        assert value is None or re.fullmatch(r"[mcj][0-9]{2,6}", value)


@family(150, LINES, cases=(b'{"op":"hidden"}', b'{"op":"scan","id":"x","parts":[]}'))
def test_a_line_to_the_grader_is_a_request_or_none(line: bytes) -> None:
    with contextlib.suppress(ValidationError):
        request: Request = _REQUEST.validate_json(line)
        assert request.id is not None


@family(300, st.binary(max_size=300), cases=(b'{"a":' * 5000, b'{"a":"\\ud800"}', b'{"a":1,"a":2}'))
def test_strict_json_gives_an_encodable_object_of_bounded_depth(data: bytes) -> None:
    try:
        value: Any = parse_object(data)
    except StrictError:
        return
    json.dumps(value, ensure_ascii=False).encode("utf-8")
    depth = 0
    while isinstance(value, dict | list) and value:
        value, depth = next(iter(value.values() if isinstance(value, dict) else value)), depth + 1
    assert depth <= MAX_DEPTH


@family(120, st.dictionaries(st.sampled_from(["messages", "prompt", "n", "stop", "max_tokens", "temperature"]), JSON))
def test_a_model_request_keeps_the_tasks_decoding_or_is_refused(body: dict[str, Any]) -> None:
    decoding = Decoding(temperature=0.5, max_tokens=32)
    for read in (chat_request, text_request):
        with contextlib.suppress(Refused):
            asked = read(body, decoding)
            assert 0 < asked.max_tokens <= 32 and len(asked.stop) <= 8


@family(120, JSON)
def test_a_prompt_row_is_rewritten_from_known_keys_or_refused(row: Any) -> None:
    with contextlib.suppress(Refusal):
        assert set(json.loads(prompt_row(row, 1))) <= {"prompt", "messages"}


# -- what is shown


@family(300, st.text(max_size=80), cases=("www.evil.example", "javascript:alert(1)", "<script>", "![x](y)", "=cmd()"))
def test_foreign_text_in_a_report_opens_no_markup(text: str) -> None:
    shown = escape(text)
    assert not set(re.sub(r"&#\d+;", "", shown)) & set("\\`*_{}[]#|<>~@$\x1b\n")
    assert "\x1b" not in html.unescape(shown)


@family(100, st.lists(st.tuples(st.text(max_size=9), st.integers(1, 99)), max_size=30))
def test_findings_are_one_bounded_line(rows: list[tuple[str, int]]) -> None:
    from grader.protocol import Overlap

    found = [Overlap(part="data", path=path, line=line, problem="v001", how="question") for path, line in rows]
    assert len(described(found)) < 100 + 120 * (len(rows) + 1)


# -- contamination and provenance


WRAPS: dict[str, Callable[[str], bytes]] = {
    "plain": str.encode,
    "upper": lambda text: text.upper().encode(),
    "json": lambda text: json.dumps({"x": [{"y": text}]}).encode(),
    "base64": lambda text: base64.b64encode(text.encode()),
    "hex": lambda text: text.encode().hex().encode(),
    "gzip": lambda text: gzip.compress(text.encode(), mtime=0),
    "zlib": lambda text: zlib.compress(text.encode()),
    "rot13": lambda text: codecs.encode(text, "rot13").encode(),
    "backwards": lambda text: text[::-1].encode(),
    "gzip in base64": lambda text: base64.b64encode(gzip.compress(text.encode(), mtime=0)),
    "utf-16": lambda text: text.encode("utf-16"),
}
CLEAN_TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=200).map(lambda text: text + ".\n")


@family(
    150,
    st.tuples(st.sampled_from(QUESTIONS), st.sampled_from(sorted(WRAPS)), CLEAN_TEXT, st.booleans()),
    cases=(
        (QUESTIONS[0], "backwards", "0.\n", True),  # numbers beside numbers
        (QUESTIONS[0], "plain", "12.\n", False),
        (QUESTIONS[0], "hex", "0" * 24 + ".\n", True),  # noise beside an encoded word
        (QUESTIONS[0], "base64", "0" * 24 + "\n" + "A" * 30 + "\n", True),
    ),
)
def test_a_question_is_found_wherever_it_is_put(drawn: tuple[Any, str, str, bool]) -> None:
    import scan_views

    problem, how, around, twice = drawn
    whole = how not in ("plain", "upper", "backwards", "rot13", "base64", "hex")
    data = WRAPS[how](problem.question)
    if not whole:
        data = around.encode() + b"\n" + data + b"\n" + around.encode() * twice
    found = {hit.problem for view in scan_views.views(data, scan_views.Budget()) for hit in INDEX.find(view.text)}
    assert problem.id in found


@family(300, st.binary(max_size=600) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_read_without_an_error_and_hold_no_problem(data: bytes) -> None:
    import scan_blobs
    import scan_views

    for form in (data, base64.b64encode(data), zlib.compress(data)):
        budget = scan_views.Budget()
        texts = [view.text for view in scan_views.views(form, budget)]
        assert sum(map(len, texts)) <= 40 * len(data) + 5000 and budget.room >= 0
        assert not [hit for text in texts for hit in INDEX.find(text)]
        assert 0 <= scan_blobs.opaque_bytes(form) <= len(form) and isinstance(scan_blobs.weights_kind(form), str)


@family(150, st.binary(min_size=1, max_size=200), st.sampled_from(["gz", "zip", "b64"]), st.integers(0, 60))
def test_a_damaged_archive_is_passed_over(data: bytes, kind: str, cut: int) -> None:
    import scan_read

    packed = {"gz": gzip.compress(data, mtime=0), "b64": base64.b64encode(data)}.get(kind) or _zip(data)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "x")
        path.write_bytes(packed[: max(1, len(packed) - cut)])
        for fact in scan_read.of_file(str(path), "x.py"):
            json.dumps(fact)


def _zip(data: bytes) -> bytes:
    import zipfile

    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("a", data)
    return made.getvalue()


# -- endings


@family(100, st.lists(st.tuples(st.integers(1, 1 << 22), st.sampled_from(["", " -", " 4194304"])), max_size=20))
def test_the_keeper_remembers_what_does_not_stand_yet(lines: list[tuple[int, str]]) -> None:
    starting: dict[int, int] = {}
    expected: set[int] = set()
    for outer, rest in lines:
        keeper.take(f"{outer}{rest}\n", starting)
        (expected.discard if rest == " -" else expected.add)(outer)
    assert set(starting) == expected
