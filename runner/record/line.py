"""One line of the journal: from an event to bytes and back. Reading is total over any bytes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any, NoReturn

from runner.record.events import ENVELOPE, Event, Unknown, parse_payload

MAX_LINE = 4 << 20  # bytes; a longer line is skipped by every reader
MAX_WRITE = 1 << 20  # bytes; a longer line is not written: big strings in it are cut first
_CUT_TEXT = 2048  # characters a string keeps when its line was too long
_MAX_SEQ = 1 << 53
_SUM = b',"sum":"'


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _whole(text: str) -> int:
    """No count is larger than this; a larger one could not even be divided where views make a share of it."""
    if len(text) > 20:
        raise ValueError("a number beyond reason")
    return int(text)


_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_int=_whole)


def damaged(number: int, why: str) -> Event:
    """The event that stands for line ``number`` (from 1) when it cannot be read: ``v`` 0, kind ``?``."""
    return Event(v=0, seq=number, t=0.0, el=0.0, prev="", payload=Unknown(kind="?", fields={}, why=why))


def parse_line(raw: bytes, number: int) -> Event:
    """The event in one raw line; total over any bytes."""
    try:
        fields = _DECODER.decode(raw.decode())
    except (ValueError, RecursionError):
        return damaged(number, "not JSON")
    if not isinstance(fields, dict):
        return damaged(number, "not an object")
    envelope = [fields.pop(name, None) for name in ENVELOPE]
    fields.pop("sum", None)
    if not _envelope_holds(envelope):
        return damaged(number, "no envelope")
    v, seq, t, el, prev = envelope
    payload = parse_payload(fields)
    if isinstance(payload, Unknown) and not _printable(fields):
        payload = Unknown(kind=payload.kind, fields={}, why=payload.why)
    return Event(v=v, seq=seq, t=float(t), el=float(el), prev=prev, payload=payload)


def _printable(fields: dict[str, Any]) -> bool:
    """Can an unknown payload be written as JSON again? Not with 1e999 in it, or nested beyond reason."""
    try:
        _json(fields)
    except (ValueError, RecursionError):
        return False
    return True


def _envelope_holds(envelope: list[Any]) -> bool:
    v, seq, t, el, prev = envelope
    whole = type(v) is int and type(seq) is int and 1 <= v < _MAX_SEQ and 1 <= seq < _MAX_SEQ
    return whole and _finite(t) and _finite(el) and isinstance(prev, str)


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e15 < value < 1e15


def event_fields(event: Event) -> dict[str, Any]:
    """The event as the flat JSON object of its line (without ``sum``)."""
    if isinstance(event.payload, Unknown):
        payload = {**event.payload.fields, "kind": event.payload.kind}
    else:
        payload = event.payload.model_dump(mode="json")
    kind = payload.pop("kind")
    head = {"v": event.v, "seq": event.seq, "t": event.t, "el": event.el, "kind": kind, "prev": event.prev}
    return {**head, **{key: value for key, value in payload.items() if key not in head}}


def encode(event: Event) -> bytes:
    """The raw line of an event, without its newline."""
    start = _json(event_fields(event))[:-1].encode()
    return start + _SUM + _own_sum(start) + b'"}'


def shortened(event: Event) -> Event:
    """The event with its long strings cut: what is written when the line would pass MAX_WRITE."""
    fields = _cut(event_fields(event))
    payload = parse_payload({key: value for key, value in fields.items() if key not in ENVELOPE})
    return replace(event, payload=payload)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _CUT_TEXT else value[:_CUT_TEXT] + "…"
    if isinstance(value, dict):
        return {key: _cut(item) for key, item in value.items()}
    return [_cut(item) for item in value] if isinstance(value, list) else value


def _own_sum(start: bytes) -> bytes:
    return hashlib.sha256(start).hexdigest()[:16].encode()


def sum_holds(raw: bytes) -> bool:
    """Is the raw line as it was written, by its own sum?"""
    start, mark, rest = raw.rpartition(_SUM)
    return bool(mark) and rest == _own_sum(start) + b'"}'
