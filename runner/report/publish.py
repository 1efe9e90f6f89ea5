"""``runner report``: the whole report of one run on disk: Markdown, page, JSON, and each figure as SVG and PNG.

Needs the extra ``report`` and says so where it is missing. Writes only below the run's report/, each file atomically.
"""

from __future__ import annotations

from pathlib import Path

from isolation.files import write_atomic
from runner.config import ConfigError
from runner.record.rundir import RunDir
from runner.record.state import RunState
from runner.report.document import build, unwritten, write_report
from runner.report.markdown import markdown
from runner.report.story import tell


def missing_extra(error: ImportError) -> ConfigError:
    """The one line for a missing Jinja2 or matplotlib."""
    return ConfigError(f"{error.name} is not installed", where="the extra `report`", do="Type: scripts/setup")


def publish(run: RunDir, state: RunState) -> list[Path]:
    """Write everything and return the files, the page first. Raises JournalError, and ConfigError without the extra."""
    try:
        from runner.report.explorer import explore
        from runner.report.figures import figures
        from runner.report.html import page
    except ImportError as error:
        raise missing_extra(error) from error
    report, story = build(state), tell(run, state)
    pictures = figures(story)
    files = {
        "report.html": page(story, pictures, explore(run, story)).encode(),
        "report.md": markdown(state, story, [(f"{item.name}.svg", item.title) for item in pictures]).encode(),
        "report.json": (report.model_dump_json(indent=2) + "\n").encode(),
    }
    for picture in pictures:
        files[f"figures/{picture.name}.svg"] = picture.svg
        files[f"figures/{picture.name}.png"] = picture.png
    return write_files(run, files)


def publish_or_less(run: RunDir, state: RunState) -> None:
    """Everything, or Markdown and JSON alone where the extra is missing: a run ends with a report in any case."""
    try:
        publish(run, state)
    except ConfigError:
        write_report(run, state)


def front_page(run: RunDir) -> Path:
    """The file to open first of a report that was written."""
    page = run.report / "report.html"
    return page if page.is_file() else run.report / "report.md"


def write_files(run: RunDir, files: dict[str, bytes]) -> list[Path]:
    """Write ``files`` below report/, each whole or not at all."""
    try:
        for name, content in files.items():
            path = run.report / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, content)
    except OSError as error:
        raise unwritten(run, error) from error
    return [run.report / name for name in files]
