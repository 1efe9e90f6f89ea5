"""What the rules of the three APIs share: a request is never passed on, it is built anew from what is allowed.

Every part is copied by name from lists of what a client-side agent needs; what the *provider* would do for an agent
behind the walls (search the web, fetch an address, run code, remember) is refused by name, and so is what is in no
list where the content of a conversation stands. Free-form places (a tool's arguments, its schema) are data and copied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from grader.request import Refused

MAX_ITEMS = 20_000
_NAMED = (
    "web_search", "web_fetch", "code_execution", "code_interpreter", "file_search", "image_generation", "mcp",
    "computer", "container", "bash_code_execution", "text_editor_code_execution", "server_tool",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Canonical:
    """A request as it goes to the upstream. ``asked`` is the client's own wish for the length of the reply.

    ``limit_field`` is where a limit on the reply goes; ``usage_hidden``: the client did not ask for the usage event.
    """

    body: dict[str, Any]
    stream: bool
    asked: int | None
    limit_field: str
    usage_hidden: bool = False


Builder = Callable[[Mapping[str, Any], Collection[str]], Canonical]


def refuse(rule: str, detail: str) -> NoReturn:
    """Refuse a request by a named rule; the text reaches the agent, the rule the journal."""
    raise Refused(400, f"refused here ({rule}): {detail}", attempt=f"LLM request: {rule}")


def wrong(detail: str) -> NoReturn:
    """A request that is no request of this API: an error, no attempt."""
    raise Refused(400, f"not a request of this API: {detail}")


def short(value: object) -> str:
    """A client's word, quoted for an error."""
    return repr(value)[:60]


def pick(source: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The named fields that are there and not null."""
    return {name: source[name] for name in names if source.get(name) is not None}


def objects(value: object, what: str) -> list[dict[str, Any]]:
    """A list of objects, or an error."""
    if not isinstance(value, list) or len(value) > MAX_ITEMS or not all(isinstance(item, dict) for item in value):
        wrong(f"{what} must be a list of at most {MAX_ITEMS} objects")
    return value


def text(value: object, what: str) -> str:
    """A string, or an error."""
    if not isinstance(value, str):
        wrong(f"{what} must be a text")
    return value


def model(body: Mapping[str, Any], models: Collection[str]) -> str:
    """The model asked for; only those of the run."""
    name = body.get("model")
    if not isinstance(name, str) or name not in models:
        refuse("model", f"{short(name)} is not the model of this run; there is {', '.join(sorted(models))}")
    return name


def forbid(body: Mapping[str, Any], names: Mapping[str, str]) -> None:
    """Refuse fields whose presence (neither null nor false nor empty) asks something of the provider."""
    for name, why in names.items():
        if body.get(name):
            refuse(name, why)


def kind_of(item: Mapping[str, Any], default: str = "") -> str:
    """The ``type`` of a part."""
    kind = item.get("type", default)
    if not isinstance(kind, str):
        wrong("a type must be a text")
    return kind


def unknown_tool(kind: str) -> NoReturn:
    """A tool that the client does not execute itself."""
    rule = next((name for name in _NAMED if kind.startswith(name)), "tool type")
    refuse(rule, f"the tool {short(kind)} would be executed by the provider; tools run in the sandbox only")


def unknown_content(kind: str) -> NoReturn:
    """A part of a conversation that no client-side agent needs."""
    rule = next((name for name in _NAMED if kind.startswith(name)), "content type")
    refuse(rule, f"content of type {short(kind)} is not passed on: text, images by value and tool results are")


def data_url(value: object, what: str) -> str:
    """An address that holds its content itself."""
    if not isinstance(value, str) or value[:5].lower() != "data:":
        refuse("url source", f"{what} must hold its content (data:…): the provider fetches nothing for a run")
    return value


def whole(value: object, what: str) -> int | None:
    """A positive whole number, or None where there is none."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        wrong(f"{what} must be a whole number of at least 1")
    return value


def flag(value: object, what: str) -> bool:
    """True, false or nothing."""
    if value is not None and not isinstance(value, bool):
        wrong(f"{what} must be true or false")
    return bool(value)
