"""Exit codes, mapped by error type here and nowhere else."""

from __future__ import annotations

import sys

from grader.engines.base import EngineError
from grader.errors import GraderError, ProblemsError
from isolation.clean import clean_line
from isolation.problem import BenchError, IntakeError, SandboxError
from runner.config import ConfigError
from runner.record.journal import JournalError
from runner.research.lease import LeaseError
from runner.research.llm.upstream import LlmError
from runner.research.workspace import WorkspaceError
from tasks.spec import TaskError


class BudgetError(BenchError):
    """The budget cannot hold what was asked of it."""


class RunStopped(BenchError):
    """A person asked the run to stop; it can be resumed."""


class NoScore(BenchError):
    """The run ended as it should, but nothing was selected."""


OK, INTERNAL, USAGE, WALLS, TASK, GRADER, FOLDER, BUDGET, INTAKE, NO_SCORE, LLM = range(11)
STOPPED = 130

EXIT_CODES: dict[type[BaseException], int] = {
    ConfigError: USAGE,
    SandboxError: WALLS,
    IntakeError: INTAKE,
    TaskError: TASK,
    EngineError: GRADER,
    GraderError: GRADER,
    ProblemsError: TASK,
    JournalError: FOLDER,
    LeaseError: FOLDER,
    LlmError: LLM,
    WorkspaceError: FOLDER,
    BudgetError: BUDGET,
    NoScore: NO_SCORE,
    RunStopped: STOPPED,
    KeyboardInterrupt: STOPPED,
}


def exit_code(error: BaseException) -> int:
    """The exit code of ``error``: that of the nearest class in its ancestry, else 1."""
    for ancestor in type(error).__mro__:
        if ancestor in EXIT_CODES:
            return EXIT_CODES[ancestor]
    return FOLDER if isinstance(error, OSError) else INTERNAL


def tell(error: BaseException) -> int:
    """Write the one line of ``error`` to stderr and return its exit code."""
    if isinstance(error, OSError) and not isinstance(error, BenchError):
        where = error.filename or "the operating system"
        text = f"{where}: {error.strerror or error}. Check the path, its permissions and the free space"
    else:
        text = str(error) or type(error).__name__
    sys.stderr.write(f"runner: {clean_line(text)}\n")
    return exit_code(error)
