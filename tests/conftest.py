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


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config, items):
    """Whole runs share one machine, whose lock lets one run at a time: one worker takes them all, and takes them first.
    The tests of any other file stay together, because they share what is slow to start."""
    for item in items:
        whole_runs = "tests/functional/" in item.nodeid
        item.add_marker(pytest.mark.xdist_group("machine" if whole_runs else item.nodeid.partition("::")[0]))
    items.sort(key=lambda item: "tests/functional/" not in item.nodeid)
    if config.getoption("--long"):
        return
    skip = pytest.mark.skip(reason="only with --long")
    for item in items:
        if "long" in item.keywords:
            item.add_marker(skip)
