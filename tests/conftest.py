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


WHOLE_RUNS = ("tests/functional/", "tests/attacks/test_agent_campaign.py", "tests/attacks/test_hidden_overlap.py")
"""They hold the machine's lock: side by side they would only wait for each other."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A file is a worker's work; all whole runs together are one worker's, and come first (they take longest)."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return WHOLE_RUNS[0] if nodeid.startswith(WHOLE_RUNS) else super()._split_scope(nodeid)

    return ByFile(config, log)


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: not item.nodeid.startswith(WHOLE_RUNS))
    if config.getoption("--long"):
        return
    skip = pytest.mark.skip(reason="only with --long")
    for item in items:
        if "long" in item.keywords:
            item.add_marker(skip)
