"""report.html: one file that needs nothing else. It loads nothing, runs only the one script whose hash it names, and
is whole without that script. Everything that others wrote is cleaned, then escaped by the template engine.

Needs the extra ``report`` (Jinja2).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from runner.record import describe
from runner.record.events import Delta, Score, Split
from runner.record.naming import names
from runner.record.state import INITIAL, RunState, integrity, integrity_count, validation_of
from runner.report import words
from runner.report.card import about, caveats, designs_text, peak_text, selection_text, tried_text
from runner.report.explorer import Explorer, examples
from runner.report.grid import grid
from runner.report.plot import Picture, inline
from runner.report.story import Decision, Story
from tasks.spec import COMPONENTS, LETTERS


def page(story: Story, pictures: Sequence[Picture], explorer: Explorer) -> str:
    """The whole page, as text."""
    environment = Environment(
        loader=FunctionLoader(_part), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals.update(_formatters())
    style, script = _part("page.css"), _part("page.js")
    return environment.get_template("page.html.jinja").render(
        policy=_policy(script),
        style=Markup(style),  # noqa: S704  ours, from this package
        script=Markup(script),  # noqa: S704  ours, from this package
        data=Markup(_data(explorer)),  # noqa: S704  JSON without <, > and &
        figures={picture.name: {**_caption(picture), "svg": Markup(inline(picture))} for picture in pictures},  # noqa: S704
        **_facts(story, explorer),
    )


def _part(name: str) -> str:
    """One file of the page, from the package."""
    return resources.files("runner.report").joinpath("page", name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """Nothing is loaded, nothing is sent, and no script but ours runs."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _data(explorer: Explorer) -> str:
    """The explorer's data as JSON that cannot close its element."""
    text = json.dumps(explorer.data(), ensure_ascii=True, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _caption(picture: Picture) -> dict[str, str]:
    return {"title": picture.title, "words": picture.words}


def _formatters() -> dict[str, Any]:
    named = ("percent", "score_text", "delta_text", "duration", "clock", "count", "tokens", "money", "letters")
    return {
        **{name: getattr(describe, name) for name in named},
        "pair_text": words.pair_text,
        "verdict_text": words.verdict_text,
        "flips_text": words.flips_text,
        "p_text": words.p_text,
        "name_of": words.name_of,
        "foreign": describe.foreign,
        "LETTERS": LETTERS,
        "COMPONENTS": COMPONENTS,
        "INITIAL": INITIAL,
    }


def _facts(story: Story, explorer: Explorer) -> dict[str, Any]:
    state, merit = story.state, story.merit
    samples = next((item.validation.samples for item in state.candidates.values() if item.validation), 1)
    return {
        "state": state,
        "merit": merit,
        "name": describe.foreign(state.run.run) if state.run else "not started",
        "ended": _ended(state),
        "about": [part for line in about(state) for part in line.split(" · ")],
        "caveats": caveats(state),
        "conclusion": words.conclusion(story),
        "sure": list(words.sureness(story)),
        "hidden": state.hidden,
        "on_validation": validation_of(state, merit.selected_id),
        "gain": _gain(story),
        "parts": _parts,
        "peak": peak_text(merit, names(state).seen),
        "tried": tried_text(state, merit) if names(state).counts_trainings else "",
        "called": names(state),
        "selection": selection_text(state, merit) if merit.selected_id else "nothing was selected",
        "designs": designs_text(merit.designs),
        "decisions": [_decision(item, explorer) for item in story.decisions],
        "grid": grid(story.rewards, samples, merit.selected_id),
        "split": [(name, getattr(state.budget.split, name)) for name in Split.model_fields],
        "total": sum(getattr(state.budget.split, name) for name in Split.model_fields),
        "share": describe.share,
        "noticed": [_notice(seen) for seen in integrity(state)],
        "noticed_count": integrity_count(state),
        "explorer": bool(explorer.problems),
    }


def _ended(state: RunState) -> str:
    if state.finished is None:
        phase = state.phase.replace("_", " ")
        return "complete; written as the run's last step" if phase == "reporting" else f"not finished: phase {phase}"
    reason = f" ({describe.foreign(state.finished.reason, 200)})" if state.finished.reason else ""
    return f"finished: {state.finished.status.replace('_', ' ')}{reason}"


def _gain(story: Story) -> Delta | float | None:
    """Selected − P0 on validation; with its interval where the problems can be paired."""
    mine = next((item.to_initial for item in story.decisions if item.selected), None)
    if mine is not None:
        return mine.delta
    score = validation_of(story.state, story.merit.selected_id)
    return None if score is None or story.merit.initial is None else score.score - story.merit.initial


def _parts(value: Delta | float | None) -> tuple[str, str]:
    """A difference, and its interval by itself (empty where it is not known)."""
    number, _, between = describe.delta_text(value).partition(" ")
    return number, between


def _decision(item: Decision, explorer: Explorer) -> dict[str, Any]:
    candidate = item.candidate
    score: Score | None = candidate.validation or candidate.late
    pair = item.to_parent
    return {
        "id": describe.foreign(candidate.id, 20),
        "initial": candidate.id == INITIAL,
        "parent": candidate.parent,
        "moved": [name for name in COMPONENTS if name in candidate.components],
        "hypothesis": describe.foreign(candidate.hypothesis, 600),
        "score": score,
        "between": describe.score_text(score).partition(" % ")[2] if score else "",
        "late": candidate.late is not None and candidate.validation is None,
        "status": candidate.status,
        "error": describe.foreign(candidate.error, 300),
        "model": describe.foreign(candidate.model, 20),
        "at": describe.clock(candidate.el),
        "seconds": candidate.seconds,
        "to_parent": pair,
        "to_initial": item.to_initial if candidate.parent != INITIAL else None,
        "verdict": pair.verdict.replace("within noise", "noise") if pair else "none",
        "selected": item.selected,
        "best": item.best,
        "changes": item.changes,
        "said": item.said,
        "loss": (item.losses[0], item.losses[-1]) if len(item.losses) > 1 else None,
        "examples": examples(explorer, candidate.id, pair, candidate.parent),
    }


def _notice(seen: Any) -> dict[str, str]:
    return {
        "at": describe.clock(seen.el),
        "what": describe.foreign(seen.what.what, 120),
        "where": describe.foreign(seen.what.where, 200),
        "detail": describe.foreign(getattr(seen.what, "detail", ""), 400),
    }
