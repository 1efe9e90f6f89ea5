"""More kinds of input: checkpoints, answers, what a screen shows, limits, clocks, and where things come from."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import math
import re
import tempfile
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from fuzz_kit import JSON, family
from hypothesis import strategies as st

from grader.errors import GraderError
from grader.identity import subject_identity, tree_digest
from grader.inside.gate_files import WIDTHS, RefusedError, read_header, read_lora
from grader.ledger import Ledger
from grader.strict import LineReader, StrictError
from isolation.clean import clean, clean_line
from runner.config import ConfigError
from runner.record.events import BudgetLimits, Warned
from runner.record.journal import Journal, verify
from runner.report.explorer import Explorer
from runner.report.html import _data
from runner.research.budget import Budget
from runner.research.train import TAIL_BYTES, CappedLog, parse_metric
from runner.resolve import seconds
from tasks.aime.score import extract

# -- checkpoints


NUMBER = st.integers(-4, 40) | st.integers() | st.booleans() | st.floats()
TENSOR = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from([*WIDTHS, "I8", ""]) | JSON,
        "shape": st.lists(NUMBER, max_size=4) | JSON,
        "data_offsets": st.lists(NUMBER, min_size=2, max_size=2) | JSON,
        "x": JSON,
    },
)
HEADERS = st.dictionaries(st.sampled_from(["a", "b", "__metadata__"]) | st.text(max_size=6), TENSOR | JSON, max_size=4)
GOOD = {
    "a": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]},
    "b": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]},
}


def whole(header: bytes, data: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + data


def changed(drawn: tuple[list[tuple[int, int]], int]) -> bytes:
    """A good file with some bytes replaced and its end cut off."""
    file = bytearray(whole(json.dumps(GOOD).encode(), bytes(16)))
    for place, value in drawn[0]:
        file[place % len(file)] = value
    return bytes(file[: len(file) - drawn[1]])


CHANGES = st.tuples(st.lists(st.tuples(st.integers(0, 999), st.integers(0, 255)), max_size=4), st.integers(0, 4))
CHECKPOINTS = (
    st.binary(max_size=200)
    | st.tuples(HEADERS, st.integers(0, 40)).map(
        lambda drawn: whole(json.dumps(drawn[0]).encode("utf-8", "surrogatepass"), bytes(drawn[1]))
    )
    | st.tuples(st.lists(st.tuples(st.integers(0, 999), st.integers(0, 255)), max_size=4), st.integers(0, 4)).map(
        changed
    )
)


@family(200, CHECKPOINTS, cases=(whole(b"[" * 5000, b""), b"\xff" * 8))
def test_a_checkpoint_is_refused_or_its_tensors_tile_the_file(file: bytes) -> None:
    with tempfile.TemporaryFile() as stream:
        stream.write(file)
        stream.flush()
        try:
            tensors = read_header(stream.fileno(), "x.safetensors", 1 << 16)
        except RefusedError as refused:
            assert str(refused).isprintable() and len(str(refused)) < 600
            return
    assert all(one.end - one.begin == math.prod(one.shape) * WIDTHS[one.dtype] > 0 for one in tensors)
    assert all(before.end == after.begin for before, after in itertools.pairwise(tensors))
    assert not tensors or tensors[-1].end == len(file)


KEYS = st.sampled_from(["peft_type", "r", "lora_alpha", "use_rslora", "bias", "init_lora_weights", "x"])
VALUES = st.sampled_from(["LORA", "none", True, False, 4, 0.5, 10**400]) | JSON


@family(150, st.dictionaries(KEYS, VALUES))
def test_an_adapters_configuration_is_refused_or_bounded(config: dict[str, Any]) -> None:
    try:
        lora = read_lora(config)
    except RefusedError as refused:
        assert str(refused).isprintable()
        return
    assert 1 <= lora.r <= 1024 and 0 < lora.scale <= 65536


@family(
    200, st.binary(max_size=80) | st.dictionaries(KEYS | st.just("step"), VALUES).map(lambda v: json.dumps(v).encode())
)
def test_a_metric_is_finite_numbers_or_none(line: bytes) -> None:
    row = parse_metric(line)
    assert row is None or all(math.isfinite(value) for value in row.model_dump().values() if value is not None)


# -- answers


PIECES = st.sampled_from(
    ["\\boxed{", "\\fbox {",
     "{", "}", "\\", "$", "^\\circ", "\\text{cm}", "\\pmod 7", "=", ",", "{,}", ".", "-", "−", " ",
     "７", "<think>", "</think>", "\\frac{1}{2}", "%", "thousand", "(", ")", "\n", "\\left", "\\,", "12", "0", "٣"]
)  # fmt: skip
ANSWERS = st.lists(PIECES | st.text(max_size=4) | st.integers(0, 1999).map(str), max_size=14).map("".join)
WIDE = str.maketrans("０１２３４５６７８９", "0123456789")


@family(300, ANSWERS, cases=("\\boxed{" * 3000, "\\boxed{" + "{" * 20_000 + "}" * 20_000 + "}"))
def test_an_answer_is_read_as_what_stands_in_it(answer: str) -> None:
    found = extract(answer)
    assert (found.integer is None) or not (found.expression or found.reason)
    if found.integer is not None:
        digits = re.sub(r"[^0-9]", "", answer.translate(WIDE))
        assert str(abs(found.integer)) in digits


# -- what is shown


SEQUENCES = st.sampled_from(
    ["\x1b", "[", "]52;c;", "31m", "\x07", "\x9b", "\x9d", "\x90", "\\", "\u202e", "\u200b", "\ud800", "a", "é",
     "\n", "\t", "\r", "\x00", "\x7f", "P", "X", "^", "_", "\U000e0041", "\ufeff"]
)  # fmt: skip
SHOWN = st.text(max_size=60) | st.lists(SEQUENCES, max_size=60).map("".join)


@family(300, SHOWN)
def test_a_terminal_gets_text_alone(text: str) -> None:
    safe, line = clean(text), clean_line(text, 40)
    for char in safe + line:
        assert char in "\t\n" or unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp"), repr(char)
        assert unicodedata.bidirectional(char) not in ("RLE", "LRE", "RLO", "LRO", "PDF", "RLI", "LRI", "FSI", "PDI")
    safe.encode()
    assert clean(safe) == safe and len(line) <= 40 and not set("\t\n") & set(line)


@family(200, st.dictionaries(st.text(max_size=20), SHOWN, max_size=3), cases=({"v": "</script><!--"},))
def test_data_in_a_page_cannot_leave_its_element(questions: dict[str, str]) -> None:
    text = _data(Explorer(questions, {}, 0))
    assert not set("<>&") & set(text) and text.isascii()
    assert [row[1] for row in json.loads(text)["problems"]] == list(questions.values())


# -- limits


@family(150, st.lists(st.binary(max_size=40), max_size=30), st.integers(0, 99))
def test_a_capped_log_keeps_its_size_and_says_what_it_left_out(chunks: list[bytes], limit: int) -> None:
    file = io.BytesIO()
    log = CappedLog(file, limit)
    for chunk in chunks:
        log.write(chunk)
    total = sum(map(len, chunks))
    assert file.getvalue() == b"".join(chunks)[:limit] and log.left_out == max(0, total - limit)
    log.end()
    assert len(file.getvalue()) <= limit + TAIL_BYTES + 100


@family(150, st.lists(st.binary(max_size=30) | st.just(b"\n"), max_size=20), st.integers(1, 40))
def test_a_line_is_bounded_and_none_is_lost(chunks: list[bytes], limit: int) -> None:
    data = b"".join(chunks)

    async def lines() -> list[bytes]:
        stream = asyncio.StreamReader()
        stream.feed_data(data)
        stream.feed_eof()
        reader, found = LineReader(stream, limit), []
        while (line := await reader.line()) is not None:
            found.append(line)
        return found

    long = max(map(len, data.split(b"\n")))
    try:
        assert asyncio.run(lines()) == data.split(b"\n")[:-1]
    except StrictError:
        assert long > limit


@family(200, st.text(alphabet="0123456789.smhd -+e_٣", max_size=8) | st.floats() | st.integers())
def test_a_duration_is_positive_and_finite_or_refused(text: Any) -> None:
    try:
        value = seconds(text)
    except ConfigError:
        return
    assert 0 < value < 10 * 365 * 86400


# -- clocks


class HandClock:
    """A clock that a test moves; ``asleep``: how long the machine was suspended."""

    def __init__(self) -> None:
        self.now, self.asleep = 1000.0, 0.0

    def monotonic(self) -> float:
        return self.now

    def boottime(self) -> float:
        return self.now + self.asleep

    def unix(self) -> float:
        return 5e8 + self.now + self.asleep


MOVES = st.lists(
    st.tuples(st.sampled_from(["run", "suspend", "pause", "resume", "read"]), st.floats(0, 50)), max_size=30
)


@family(200, MOVES)
def test_a_budget_is_charged_for_what_ran_whatever_the_clocks_do(moves: list[tuple[str, float]]) -> None:
    clock = HandClock()
    budget = Budget(BudgetLimits(wall_s=100.0), clock)
    budget.start()
    ran, last = 0.0, 0.0
    for what, length in moves:
        if what == "run":
            clock.now += length
            ran += length if budget.running else 0.0
        elif what == "suspend":
            clock.asleep += length
        elif what in ("pause", "resume"):
            getattr(budget, what)()
        assert budget.el() >= last
        last = budget.el()
    assert budget.el() == pytest.approx(ran, abs=1e-6)
    assert budget.left() == pytest.approx(max(0.0, 100 - ran), abs=1e-6)


# -- where things come from


FILES = st.dictionaries(
    st.sampled_from(["a", "b", "a.md", "README.md", "d/a", "d/b.md", "d/a.md"]), st.binary(max_size=6), max_size=4
)


@family(80, st.tuples(FILES, FILES), cases=(({"a.md": b"1"}, {"a.md": b"2"}), ({}, {"README.md": b""})))
def test_two_harnesses_are_one_only_if_every_file_is(trees: tuple[dict[str, bytes], dict[str, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        roots = []
        for number, tree in enumerate(trees):
            roots.append(Path(place, str(number)))
            for name, content in tree.items():
                path = roots[-1] / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            roots[-1].mkdir(exist_ok=True)
        same = [tree_digest(root) for root in roots]
        assert (same[0] == same[1]) is (trees[0] == trees[1])
        assert (subject_identity("m", roots[0]) == subject_identity("m", roots[1])) is (trees[0] == trees[1])


FLIPS = st.tuples(st.integers(0, 1 << 16), st.integers(0, 7))


def flipped(path: Path, drawn: tuple[int, int]) -> bytes:
    data = bytearray(path.read_bytes())
    data[drawn[0] % len(data)] ^= 1 << drawn[1]
    return bytes(data)


def record(place: str) -> Path:
    path = Path(place, "journal.jsonl")
    journal = Journal.create(path, lambda: 1.5, now=lambda: 1e9)
    for number in range(3):
        journal.append(Warned(what=f"event {number}", where="here"))
    journal.close()
    return path


@family(100, FLIPS)
def test_a_record_with_a_flipped_bit_is_noticed(drawn: tuple[int, int]) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = record(place)
        size = path.stat().st_size
        path.write_bytes(flipped(path, drawn))
        chain = verify(path)
        assert not chain.ok or (drawn[0] % size == size - 1 and chain.torn)


@family(40, FLIPS)
def test_a_ledger_with_a_flipped_bit_holds_the_claim_or_is_refused(drawn: tuple[int, int]) -> None:
    with tempfile.TemporaryDirectory() as place:
        ledger = Ledger(Path(place, "sealed"))
        ledger.claim("run1", "c07")
        ledger.record("finished", {"score": 1})
        path = Path(place, "sealed", ["ledger.jsonl", "claim.json"][drawn[0] % 2])
        path.write_bytes(flipped(path, drawn))
        try:
            ledger.claim("run1", "c08")
        except GraderError:
            return
        raise AssertionError("another candidate got the hidden test")


def test_the_strategies_reach_what_they_are_made_for() -> None:
    """A family that only ever draws what is refused tries nothing."""
    assert extract("\\boxed{7}").integer == 7
    with tempfile.TemporaryFile() as stream:
        stream.write(changed(([], 0)))
        stream.flush()
        assert len(read_header(stream.fileno(), "x.safetensors")) == 2
    assert read_lora({"peft_type": "LORA", "r": 4, "lora_alpha": 4, "bias": "none", "target_modules": ["q"]}).r == 4
