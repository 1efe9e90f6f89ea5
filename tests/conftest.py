"""Options of the whole test command."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

# A busy machine is no fault, and the tests of an ordinary user cannot write into a checkout of root.
settings.register_profile("here", deadline=None, database=None)
settings.load_profile("here")


def pytest_configure(config):
    """A shell starts background commands with SIGINT ignored and children inherit that: tests of Ctrl-C need it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="run the long tests too")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--long"):
        return
    skip = pytest.mark.skip(reason="only with --long")
    for item in items:
        if "long" in item.keywords:
            item.add_marker(skip)
