"""Families of inputs: each property is two tests, some hundred inputs in the test command and 100,000 with --long."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

LONG = 100_000
CALM = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=5,
)


def family(few: int, *strategies: Any, cases: tuple[Any, ...] = ()) -> Callable[[Any], Any]:
    """A property as two tests: ``few`` inputs in the test command, 100,000 with --long."""

    def make(check: types.FunctionType) -> Any:
        long = types.FunctionType(check.__code__, check.__globals__, f"{check.__name__}_long", check.__defaults__)
        long.__annotations__ = check.__annotations__
        for case in cases:
            check = example(case)(check)
        quick = settings(max_examples=few, suppress_health_check=CALM)(given(*strategies)(check))
        slow = settings(max_examples=LONG, suppress_health_check=CALM)(given(*strategies)(long))
        check.__globals__[long.__name__] = pytest.mark.long(pytest.mark.timeout(7200)(slow))
        return quick

    return make
