"""The page and the figures: whole, self-contained, and deaf to what others wrote."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import html5lib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_samples import HOSTILE, write_run
from report_kit import Made, a_good_run, flags
from test_report_run import poisoned

from runner.record.journal import load
from runner.record.rundir import RunDir
from runner.record.state import RunState
from runner.report.explorer import Explorer, explore
from runner.report.figures import figures
from runner.report.html import page
from runner.report.markdown import literal, markdown
from runner.report.plot import Picture, inline
from runner.report.publish import publish
from runner.report.story import Story, tell

SPACE = "{http://www.w3.org/1999/xhtml}"
SAFE_SCRIPTS = {None, "application/json"}


def parsed(text: str) -> ElementTree.Element:
    """The page as a browser reads it; a fault in it is an error."""
    parser = html5lib.HTMLParser(strict=False)
    document: ElementTree.Element = parser.parse(text)
    faults = [name for _, name, _ in parser.errors]
    assert not faults, faults[:5]
    return document


def written(run: RunDir) -> str:
    story = tell(run, load(run.journal_file))
    return page(story, figures(story), explore(run, story))


def words(document: ElementTree.Element) -> str:
    return " ".join("".join(document.itertext()).split())


def holds_nothing_foreign(text: str) -> None:
    """No element, attribute or address in the page but ours."""
    document = parsed(text)
    scripts = document.findall(f".//{SPACE}script")
    assert len(scripts) == 2
    policy = document.find(f".//{SPACE}meta[@http-equiv='Content-Security-Policy']")
    assert policy is not None
    ours = base64.b64encode(hashlib.sha256((scripts[1].text or "").encode()).digest()).decode()
    assert f"script-src 'sha256-{ours}'" in policy.attrib["content"]
    for element in document.iter():
        assert not element.tag.endswith(("}img", "}iframe", "}link", "}object", "}embed", "}form", "}base", "}video"))
        for name, value in element.attrib.items():
            assert not name.lower().startswith("on")
            if name.rpartition("}")[2] in ("href", "src", "action"):
                assert value.startswith("#")


def test_a_page_is_valid_labelled_and_loads_nothing(tmp_path: Path) -> None:
    text = written(a_good_run(tmp_path))
    holds_nothing_foreign(text)
    assert not re.search(r"url\((?!#)|@import|<link|(?<!xmlns=\")(?<!xlink=\")https?://(?!www\.w3\.org)", text)
    said = words(parsed(text))
    assert "On hidden problems c03 is better than P0." in said
    assert "validation · 4 spent" in said and "hidden · tested once" in said
    assert "VALIDATION score" in said
    assert "within noise of P0" in said and "worse than c03" in said


def test_a_page_is_whole_without_its_script(tmp_path: Path) -> None:
    text = written(a_good_run(tmp_path))
    bare = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    said = words(parsed(bare))
    for part in ("and a calculator", "problems gained and lost", "14 gained, 0 lost of 20", "how many?"):
        assert part in said.lower()


def test_hostile_words_do_nothing_in_the_page(tmp_path: Path) -> None:
    made = Made(tmp_path, agent=HOSTILE)
    made.validate(flags("00"), reply=HOSTILE, question=HOSTILE)
    name = made.validate(flags("11"), "data", says=HOSTILE, reply="</script><script>alert(2)</script>")
    made.fail(HOSTILE)
    made.finish(name, flags("00"), flags("11"))
    run = made.write()
    folder = run.candidate(name) / "diffs"
    folder.mkdir(parents=True)
    (folder / "harness.patch").write_text(f"+{HOSTILE}\n+</pre><img src=x onerror=alert(3)>\n")
    (folder / "data.json").write_text(json.dumps({"added": 1, "samples": {"added": [HOSTILE]}}))
    text = written(run)
    holds_nothing_foreign(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202e]", text)
    assert "alert(1)" in words(parsed(text))


def bare_story(state: RunState, folder: Path) -> Story:
    return tell(RunDir(folder / "nowhere"), state)


def test_hostile_words_in_every_field_of_every_event(tmp_path: Path) -> None:
    story = bare_story(poisoned(), tmp_path)
    pictures = figures(story)
    holds_nothing_foreign(page(story, pictures, Explorer({}, {}, 0)))
    for picture in pictures:
        assert ElementTree.fromstring(picture.svg).tag.endswith("svg")
        assert b"<script" not in picture.svg


@settings(max_examples=25, deadline=None)
@given(
    text=st.text(max_size=200), kind=st.sampled_from(["", "<b>", "</script>", "</pre>", "{{ 7*7 }}", "${x}", "\\u003c"])
)
def test_any_text_shows_as_text(tmp_path_factory: pytest.TempPathFactory, text: str, kind: str) -> None:
    said = kind + text
    explorer = Explorer({"v1": said}, {"c00": {}}, 0)
    story = bare_story(RunState(), tmp_path_factory.getbasetemp())
    whole = page(story, [], explorer)
    document = parsed(whole)
    data = document.find(f".//{SPACE}script[@type='application/json']")
    assert data is not None and json.loads(data.text or "")["problems"] == [["v1", said]]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300))
def test_a_literal_block_of_markdown_cannot_be_left(text: str) -> None:
    block = literal(text)
    assert block.startswith("<pre>\n") and block.endswith("\n</pre>")
    assert not re.search(r"[<>`*_|\[\]]", block[6:-7])


def test_markdown_tells_what_each_decision_did(tmp_path: Path) -> None:
    run = a_good_run(tmp_path)
    state = load(run.journal_file)
    text = markdown(state, tell(run, state), [("validation.svg", "The search")])
    assert "![The search](figures/validation.svg)" in text
    assert "### c03 ★: D+H" in text
    assert "14 gained, 0 lost of 20" in text
    assert "- gained: v002, v003" in text and " and 2 more" in text
    assert "HIDDEN, c03 against P0: +56.7" in text


def test_publish_writes_everything_and_says_where(tmp_path: Path) -> None:
    run = a_good_run(tmp_path)
    files = publish(run, load(run.journal_file))
    assert files[0] == run.report / "report.html"
    names = {path.relative_to(run.report).as_posix() for path in files}
    pictures = {
        f"figures/{name}.{kind}" for name in ("validation", "designs", "time", "outcome") for kind in ("svg", "png")
    }
    assert names == {"report.html", "report.md", "report.json"} | pictures
    assert all(path.stat().st_size > 100 for path in files)
    assert {path.relative_to(run.report).as_posix() for path in run.report.rglob("*") if path.is_file()} == names
    first = {path: path.read_bytes() for path in files}
    assert {path: path.read_bytes() for path in publish(run, load(run.journal_file))} == first  # no clock, no chance


def test_a_run_that_only_began_has_a_page(tmp_path: Path) -> None:
    from journal_samples import started

    run = write_run(tmp_path, [(started(), 0.0, 0.0)])
    assert figures(tell(run, load(run.journal_file))) == []
    assert "not run" in words(parsed(written(run)))


def test_a_figure_inside_a_page_takes_the_colours_of_the_page(tmp_path: Path) -> None:
    run = a_good_run(tmp_path)
    picture: Picture = figures(tell(run, load(run.journal_file)))[0]
    text = inline(picture)
    assert text.startswith("<svg") and "var(--validation)" in text
    assert "#3a68a6" not in text and "<metadata" not in text


def test_the_command_line_does_not_pay_for_figures() -> None:
    code = (
        "import sys, runner.cli, runner.commands, runner.report.document;"
        "sys.exit(bool({'matplotlib', 'jinja2', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0
