"""What attackers are tested with: the real vault behind the research tests' grader, and the problems they want."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from research_phase import EchoGrader  # type: ignore[import-not-found]

from grader.protocol import EngineConfig, GraderSetup, Progress, Reply, Request, Scan
from grader.scan import Scanner
from grader.vault_client import Vault
from tasks.aime.task import AimeTask
from tasks.registry import load_spec
from tasks.spec import Problem, SplitName


def problems(split: SplitName) -> Sequence[Problem]:
    """The mini problems, as only the vault has them in a run."""
    return AimeTask().load("mini", split, {})


def mini_setup(**changes: object) -> GraderSetup:
    """A setup whose vault opens the mini set; nothing else of it is used."""
    mini = load_spec("aime").sets["mini"]
    fields: dict[str, object] = {
        "id": "setup", "task": "aime", "problems": "mini", "validation": None, "hidden": None, "samples": 1, "seed": 0,
        "decoding": mini.decoding, "limits": mini.limits, "engine": EngineConfig(), "cgroup": None,
        **dict.fromkeys(("model_env", "base_dir", "models_dir", "runtime_dir", "log_dir"), "/nowhere"), **changes,
    }  # fmt: skip
    return GraderSetup.model_validate(fields)


async def open_vault(**changes: object) -> Vault:
    """A running vault."""
    vault = await Vault.start(mini_setup(**changes))
    await vault.open()
    return vault


class ComparingGrader(EchoGrader):  # type: ignore[misc]
    """The research tests' grader, which compares an agent's texts with the real vault and the real reader."""

    def __init__(self) -> None:
        super().__init__()
        self.vault: Vault | None = None
        self._scanner: Scanner | None = None

    async def call(self, request: Request, on_progress: Callable[[Progress], None] | None = None) -> Reply:
        if not isinstance(request, Scan):
            reply: Reply = await super().call(request, on_progress)
            return reply
        self.requests.append(request)
        if self._scanner is None:
            self.vault = await open_vault()
            self._scanner = Scanner(self.vault)
        found = await self._scanner.scan("validation", request.parts, request.known, request.evals)
        return Reply(id=request.id, ok=True, result=found.model_dump())

    async def close(self) -> None:
        if self.vault is not None:
            await self.vault.close()
