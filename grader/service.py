"""The standing parts of a grader (vault, engine, rules) and what can be asked of them, one request at a time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from grader import gate, hidden
from grader.cache import borrow, keep
from grader.engines.base import Engine, EngineError
from grader.engines.transformers import TransformersEngine
from grader.errors import GraderError
from grader.evaluate import Bench, Evaluation, OnProgress, Rules, Split, Subject
from grader.identity import model_identity, subject_identity, tree_digest
from grader.ledger import Ledger
from grader.protocol import (
    Evaluate,
    Gate,
    GateResult,
    Generate,
    GraderSetup,
    HiddenResult,
    HiddenTest,
    ModelRef,
    Noticed,
    Scan,
    ScanResult,
    ScoreFile,
    SetupResult,
)
from grader.sampling import Sampling
from grader.scan import Scanner
from grader.vault_client import Opened, Vault
from isolation import limits
from isolation.bwrap import python_mounts
from isolation.problem import SandboxError
from tasks.spec import SplitName

T = TypeVar("T")
OnNotice = Callable[[Noticed], None]
BASE = ModelRef(id="m00", format="base")


def make_engine(setup: GraderSetup, on_notice: OnNotice) -> Engine:
    """The engine that ``setup`` names, not yet started."""
    if setup.engine.kind == "vllm":
        raise GraderError("this version has no vllm engine", where="engine.kind", do='Use kind = "transformers"')
    return TransformersEngine(
        setup.engine,
        Path(setup.model_env),
        Path(setup.base_dir),
        Path(setup.models_dir),
        Path(setup.runtime_dir),
        Path(setup.log_dir) / "engine.log",
        on_notice=on_notice,
        memory=setup.engine_memory,
    )


class Service:
    """Everything between a request and its result. Call :meth:`start` first; end it with :meth:`close`."""

    def __init__(
        self,
        setup: GraderSetup,
        on_notice: OnNotice,
        engines: Callable[[GraderSetup, OnNotice], Engine] = make_engine,
    ) -> None:
        self._setup = setup
        self._on_notice = on_notice
        self._engines = engines
        self._python = Path(setup.model_env) / "bin" / "python"
        self._rules = Rules(setup.decoding, setup.limits, setup.samples, setup.seed, setup.engine)
        self._vault: Vault | None = None
        self._scanner: Scanner | None = None
        self._engine: Engine | None = None
        self._engine_name = ""
        self._opened: Opened | None = None
        self._base = ""

    async def start(self) -> SetupResult:
        """Vault and engine side by side. Raises GraderError, EngineError or SandboxError, and then nothing is left."""
        if self._setup.cgroup:
            os.environ.setdefault(limits.CGROUP_VARIABLE, self._setup.cgroup)
        steps = [asyncio.create_task(step) for step in (self._start_vault(), self._start_engine(), self._read_base())]
        try:
            await asyncio.gather(*steps)
        except BaseException:
            for step in steps:
                step.cancel()
            await asyncio.gather(*steps, return_exceptions=True)
            await self.close()
            raise
        assert self._opened is not None
        return SetupResult(
            validation=self._opened.validation,
            hidden=self._opened.hidden,
            overlap=self._opened.overlap,
            same=self._opened.same,
            engine=self._engine_name,
            weak=() if limits.backend().hard else ("cgroup",),
        )

    async def close(self) -> None:
        """Ends engine and vault; safe twice."""
        engine, self._engine = self._engine, None
        vault, self._vault = self._vault, None
        if engine is not None:
            with suppress(EngineError):
                await engine.stop()
        if vault is not None:
            await vault.close()

    async def evaluate(self, request: Evaluate, on_progress: OnProgress) -> ScoreFile:
        """A candidate on validation; tried twice when the infrastructure fails."""
        split = await self._split("validation")
        cache = Path(request.cache_dir) if request.cache_dir else None
        subject = Subject(
            candidate=request.candidate,
            eval=request.eval,
            model=request.model,
            identity=await self._identity(request.model, Path(request.harness_dir)),
            harness_dir=Path(request.harness_dir),
            out_dir=Path(request.out_dir),
        )

        async def once() -> ScoreFile:
            evaluation = Evaluation(
                await self._bench(), self._rules, split, subject, on_progress=on_progress, on_attempt=self._attempt
            )
            if cache is None:
                return await evaluation.run()
            borrowed = borrow(cache, evaluation.digest, subject.out_dir)
            score = await evaluation.run()
            keep(cache, evaluation.digest, subject.out_dir)
            return score.model_copy(update={"cached": borrowed})

        return await self._twice(once)

    async def sample(self, request: Generate, on_progress: OnProgress) -> dict[str, Any]:
        """Replies to the agent's own prompts."""

        async def once() -> dict[str, Any]:
            return await Sampling((await self._bench()).engine, request, self._setup.engine.wave, on_progress).run()

        return await self._twice(once)

    async def gate(self, request: Gate) -> GateResult:
        """Whether a trainer's output may become a model."""
        return await gate.check(
            request,
            base_dir=Path(self._setup.base_dir),
            models_dir=Path(self._setup.models_dir),
            python=self._python,
        )

    async def scan(self, request: Scan) -> ScanResult:
        """Whether validation problems, or what the model wrote for them, are in an agent's files."""
        assert self._scanner is not None
        return await self._scanner.scan("validation", request.parts, request.known, request.evals)

    async def hidden(self, request: HiddenTest, on_progress: hidden.OnNoted) -> HiddenResult:
        """The one hidden test. The claim is on the disk before the vault hands out anything hidden."""
        sealed = Path(request.sealed_dir)
        ledger = Ledger(sealed)
        ledger.claim(request.run, request.candidate)
        assert self._vault is not None
        await self._vault.unseal(request.candidate)
        split = await self._split("hidden")
        selected = Subject(
            candidate=request.candidate,
            eval="hidden-selected",
            model=request.model,
            identity=await self._identity(request.model, Path(request.harness_dir)),
            harness_dir=Path(request.harness_dir),
            out_dir=sealed / "hidden" / "selected",
        )
        initial = Subject(
            candidate="c00",
            eval="hidden-initial",
            model=BASE,
            identity=await self._identity(BASE, Path(request.initial_harness_dir)),
            harness_dir=Path(request.initial_harness_dir),
            out_dir=sealed / "hidden" / "initial",
        )
        seed = self._setup.hidden_seed
        parts = hidden.HiddenParts(
            rules=self._rules if seed is None else replace(self._rules, seed=seed),
            split=split,
            selected=selected,
            initial=initial,
            ledger=ledger,
            fresh=self._fresh,
            on_progress=on_progress,
            on_attempt=self._attempt,
        )
        result = await hidden.HiddenTest(parts).run()
        return result.model_copy(update={"overlap": await self._hidden_overlap(request, ledger)})

    async def _hidden_overlap(self, request: HiddenTest, ledger: Ledger) -> ScanResult:
        """The hidden problems in what the candidate came from: recorded once, in the sealed part."""
        if request.lineage is None:
            return ScanResult(unchecked=("no lineage was given",))
        recorded = [entry for entry in ledger.read() if entry.kind == "overlap"]
        if recorded:
            return ScanResult.model_validate(dict(recorded[-1].fields))
        assert self._scanner is not None
        try:
            found = await self._scanner.scan("hidden", request.lineage, request.known, ())
        except (GraderError, SandboxError) as error:  # a score that stands is not lost because a text was not read
            found = ScanResult(unchecked=(str(error),))
        ledger.record("overlap", found.model_dump(mode="json"))
        return found

    async def sleep(self) -> None:
        """Frees the accelerator for a trainer; an engine that is not running holds none."""
        if self._engine is not None:
            await self._engine.sleep()

    async def wake(self) -> None:
        """Takes it back, with a new engine where the old one is gone."""
        await (await self._bench()).engine.wake()

    async def _start_vault(self) -> None:
        self._vault = await Vault.start(self._setup)
        self._opened = await self._vault.open()
        self._scanner = Scanner(self._vault)

    async def _start_engine(self) -> None:
        engine = self._engines(self._setup, self._on_notice)
        try:
            self._engine_name = await engine.start()
        except BaseException:
            await engine.stop()
            raise
        self._engine = engine

    async def _read_base(self) -> None:
        self._base = await asyncio.to_thread(tree_digest, Path(self._setup.base_dir), cards=False)

    async def _fresh(self) -> Bench:
        """A new engine in place of the old one, whatever state that was in."""
        engine, self._engine = self._engine, None
        if engine is not None:
            with suppress(EngineError):
                await engine.stop()
        return await self._bench()

    async def _twice(self, work: Callable[[], Awaitable[T]]) -> T:
        """Once more when engine or walls failed, on a new engine; committed waves are not run again."""
        try:
            return await work()
        except (EngineError, SandboxError) as error:
            self._on_notice(Noticed(level="warning", what="infrastructure failed, trying once more", detail=str(error)))
        await self._fresh()
        return await work()

    async def _bench(self) -> Bench:
        """What evaluations stand on; an engine that a failure or a cancel ended is started again."""
        if self._engine is None:
            await self._start_engine()
        assert self._engine is not None
        return Bench(
            engine=self._engine,
            engine_name=self._engine_name,
            python=self._python,
            mounts=python_mounts(self._python),
            runtime_dir=Path(self._setup.runtime_dir) / "s",
        )

    async def _split(self, name: SplitName) -> Split:
        assert self._vault is not None and self._opened is not None
        return Split(
            name=name,
            info=self._opened.validation if name == "validation" else self._opened.hidden,
            problems=await self._vault.ids(name),
            public=partial(self._vault.public, name),
            judge=partial(self._vault.judge, name),
        )

    async def _identity(self, model: ModelRef, harness_dir: Path) -> str:
        served = await asyncio.to_thread(model_identity, Path(self._setup.models_dir), model, self._base)
        return await asyncio.to_thread(subject_identity, served, harness_dir)

    def _attempt(self, what: str, where: str) -> None:
        self._on_notice(Noticed(level="integrity", what=what, where=where))
