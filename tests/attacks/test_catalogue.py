"""The table of docs/security.md, the catalogue and the tests name the same things."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from catalogue import ATTACKS, TESTS

ROOT = Path(__file__).parents[2]


def test_every_test_of_the_catalogue_exists() -> None:
    for name in sorted(TESTS):
        file, _, test = name.partition("::")
        source = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {test}\(", source, re.M), name


def test_every_attack_is_tried_or_says_why_not() -> None:
    assert len(ATTACKS) == 66 and len({attack.name for attack in ATTACKS}) == 66
    assert all(attack.tests or attack.remains != "none known" for attack in ATTACKS)


def test_the_page_has_a_row_for_each() -> None:
    spec = importlib.util.spec_from_file_location("attacks_script", ROOT / "scripts" / "attacks.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    assert script.named(page) == [attack.name for attack in ATTACKS]
    assert "succeeds" not in page.partition(script.BEGIN)[2]
