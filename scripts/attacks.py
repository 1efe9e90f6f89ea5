"""Runs the tests of every attack and writes what came of it into the table of docs/security.md.

    python scripts/attacks.py [--junit FILE …] [--check]

``--junit`` takes the results of runs that were made earlier; ``--check`` only says whether the table names what the
catalogue names.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "attacks"))

from catalogue import ATTACKS, TESTS, Attack  # noqa: E402

PAGE = ROOT / "docs" / "security.md"
BEGIN, END = "<!-- attacks: written by scripts/attacks.py -->", "<!-- end of the table -->"
Results = Mapping[str, list[str]]


def run(junit: Path) -> None:
    """Every test that the catalogue names; the exit code does not matter, the table says what failed."""
    words = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", "-q", f"--junit-xml={junit}"]
    if os.getuid() == 0:
        words = [sys.executable, "-P", "-m", "isolation.privilege", "--write", str(junit.parent), "--", *words]
    subprocess.run([*words, *(f"tests/{name}" for name in sorted(TESTS))], cwd=ROOT, check=False)


def outcomes(files: Iterable[Path]) -> Results:
    """passed, failed or skipped, for each case of each test, by the catalogue's names. What a later file says of a
    test counts alone."""
    found: dict[str, list[str]] = {}
    for junit in files:
        here: dict[str, list[str]] = {}
        for case in ElementTree.parse(junit).iter("testcase"):
            name = case.get("name", "").partition("[")[0]
            place = case.get("classname", "").removeprefix("tests.").replace(".", "/")
            ended = {child.tag for child in case}
            word = "failed" if ended & {"failure", "error"} else "skipped" if "skipped" in ended else "passed"
            here.setdefault(f"{place}.py::{name}", []).append(word)
        found |= here
    return found


def result(attack: Attack, results: Results) -> str:
    """What came of an attack, in a few words."""
    if not attack.tests:
        return "not tried here"
    words = [word for test in attack.tests for word in results.get(test, ["not run"])]
    real = f" ({attack.real})" if attack.real else ""
    if "failed" in words:
        return "**succeeds, or is not seen**"
    passed = words.count("passed")
    rest = [f"{words.count(word)} {word}" for word in ("skipped", "not run") if word in words]
    return ", ".join([f"fails ({passed} passed)" if passed else "not tried here", *rest]) + real


def table(results: Results) -> str:
    """The table in Markdown."""
    rows = ["| | attack | defence | result here | seen as | what remains | tests |", "|---|---|---|---|---|---|---|"]
    for number, attack in enumerate(ATTACKS, start=1):
        tests = "<br>".join(f"`{test.replace('.py::test_', ': ')}`" for test in attack.tests) or "–"
        cells = (str(number), attack.name, attack.defence, result(attack, results), attack.seen, attack.remains, tests)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def named(page: str) -> list[str]:
    """The attacks that the table on the page names, in its order."""
    rows = page.partition(BEGIN)[2].partition(END)[0].splitlines()
    return [row.split(" | ")[1] for row in rows if row.startswith("| ") and row[2].isdigit()]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--junit", type=Path, nargs="*", help="results of earlier runs")
    parser.add_argument("--check", action="store_true", help="only compare the table with the catalogue")
    options = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    if options.check:
        return int(named(page) != [attack.name for attack in ATTACKS])
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o777)
        files = options.junit if options.junit is not None else [Path(place, "junit.xml")]
        if options.junit is None:
            run(files[0])
        results = outcomes(files)
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}", encoding="utf-8")
    words = [result(attack, results) for attack in ATTACKS]
    print(f"{len(ATTACKS)} attacks: {sum(word.startswith('fails') for word in words)} fail here, "
          f"{sum('succeeds' in word for word in words)} succeed or are not seen, "
          f"{sum(word.startswith('not tried') for word in words)} not tried here")  # fmt: skip
    return int(any("succeeds" in word for word in words))


if __name__ == "__main__":
    raise SystemExit(main())
