"""What the grader and its client say to each other, and the files an evaluation leaves behind.

One JSON object per line over the grader's stdin and stdout. A request carries ``id``; the grader answers with
``Progress`` lines and exactly one ``Reply`` of the same id. Gold answers occur in no message and no file named here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from tasks.spec import Decoding, Frozen, ProblemLimits, SplitName

GRADER_VERSION = "1"

Reason = str  # match, match_expr, mismatch, no_box, … (task) or no_answer, timeout, crash, answer_too_big, … (session)


class Score(Frozen):
    """A mean over ``n`` problems of the mean over ``samples``, in 0…1, with its 95 % interval."""

    score: Annotated[float, Field(ge=0, le=1)]
    low: Annotated[float, Field(ge=0, le=1)]
    high: Annotated[float, Field(ge=0, le=1)]
    n: Annotated[int, Field(gt=0)]
    samples: Annotated[int, Field(gt=0)]


class Delta(Frozen):
    """score(P*) − score(P0) over the same problems, −1…1, with its 95 % interval from paired problems."""

    value: float
    low: float
    high: float


class ProblemRow(Frozen):
    """A line of problems.jsonl: one sample of one problem. Never a gold answer. ``seconds`` of wall clock."""

    problem: str
    sample: int
    reward: float
    reason: Reason
    calls: int
    parse_errors: int
    tokens_in: int
    tokens_out: int
    seconds: float


class TrajectoryStep(Frozen):
    """A line of trajectories/<problem>.jsonl: a model call, or the end of a session.

    ``call``: ``prompt`` is what the harness sent (messages as JSON, or text), ``reply`` what the model wrote.
    ``end``: ``reply`` is the answer handed in, ``reason`` and ``reward`` the verdict, ``log`` the end of stderr.
    """

    problem: str
    sample: int
    step: int
    kind: Literal["call", "end"]
    prompt: str = ""
    reply: str = ""
    finish_reason: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    overwritten: tuple[str, ...] = ()
    reason: Reason = ""
    reward: float | None = None
    log: str = ""


class ScoreFile(Frozen):
    """score.json: what one evaluation says about one candidate, and everything that decided it."""

    candidate: str
    eval: str
    split: SplitName
    score: Score
    reasons: dict[Reason, int]
    zero_call_solves: int
    overwritten: dict[str, int]
    calls: int
    tokens_in: int
    tokens_out: int
    seconds: float
    reproducible: bool
    digest: str
    cached: bool = False


class SplitInfo(Frozen):
    """What the vault tells of a split: the sha256 of the file it read and how many problems it holds."""

    count: int
    sha256: str


class EngineConfig(Frozen):
    """How the model is served. ``wave`` is the number of sessions that share a batch; ``threads`` 0 = all cores."""

    kind: Literal["transformers", "vllm"] = "transformers"
    device: Literal["cpu", "cuda"] = "cpu"
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    wave: Annotated[int, Field(gt=0, le=1024)] = 128
    threads: Annotated[int, Field(ge=0)] = 0


class GraderSetup(Frozen):
    """The first request. Paths are host paths; ``hidden`` is opened by the vault alone.

    ``engine_memory`` in bytes bounds the engine's sandbox; ``cgroup`` are the folders that it may divide, by ``:``.
    ``hidden_seed``: the seed of the hidden test's draws, where it is not that of the evaluations.
    """

    op: Literal["setup"] = "setup"
    id: str
    task: str
    problems: str
    validation: str | None
    hidden: str | None
    samples: int
    seed: int
    hidden_seed: int | None = None
    decoding: Decoding
    limits: ProblemLimits
    engine: EngineConfig
    engine_memory: int | None = None
    model_env: str
    base_dir: str
    models_dir: str
    runtime_dir: str
    log_dir: str
    cgroup: str | None


class ModelRef(Frozen):
    """A gated model below ``models_dir``: its id and whether it is the base, an adapter on it, or full weights.

    ``sha256`` is what the gate said of it, ``base_sha256`` the digest of the base it stands on: an evaluation of
    anything else is refused. Empty: not known, and not looked at.
    """

    id: str
    format: Literal["base", "adapter", "full"]
    sha256: str = ""
    base_sha256: str = ""


class Evaluate(Frozen):
    """Evaluate (model, harness snapshot) on validation. Committed waves found in ``out_dir`` are not run again.

    ``cache_dir``: where waves of equal conditions are looked for and kept (the initial system's only).
    """

    op: Literal["evaluate"] = "evaluate"
    id: str
    eval: str
    candidate: str
    model: ModelRef
    harness_dir: str
    out_dir: str
    cache_dir: str | None = None


class Generate(Frozen):
    """Sample ``n`` replies to each prompt of a file ({"prompt"} or {"messages"} per line) into ``out_file``."""

    op: Literal["sample"] = "sample"
    id: str
    model: ModelRef
    prompts_file: str
    out_file: str
    n: Annotated[int, Field(gt=0, le=64)]
    max_tokens: int
    temperature: float
    seed: int


class Gate(Frozen):
    """Check what a trainer left in ``out_dir``; put the accepted files into ``model_dir``."""

    op: Literal["gate"] = "gate"
    id: str
    out_dir: str
    model_dir: str
    model: str
    parents: tuple[ModelRef, ...]


class ScanPart(Frozen):
    """A folder of an agent's (or one file), and what it is called in a finding: ``data``, or ``m02 trainer``."""

    name: str
    folder: str


class Scan(Frozen):
    """Compare ``parts`` with the validation problems, and with what the model wrote in ``evals``.

    ``known``: folders and files that every agent is given; what occurs there is no evidence.
    """

    op: Literal["scan"] = "scan"
    id: str
    parts: tuple[ScanPart, ...]
    known: tuple[str, ...] = ()
    evals: tuple[str, ...] = ()


class HiddenTest(Frozen):
    """The one hidden test. The ledger below ``sealed_dir`` refuses a second candidate.

    ``lineage``: every snapshot that the selected candidate came from, compared with the hidden problems after the test;
    None leaves that out, and the result says so. ``known`` is as in :class:`Scan`.
    """

    op: Literal["hidden"] = "hidden"
    id: str
    run: str
    candidate: str
    model: ModelRef
    harness_dir: str
    initial_harness_dir: str
    sealed_dir: str
    lineage: tuple[ScanPart, ...] | None = None
    known: tuple[str, ...] = ()


class Rest(Frozen):
    """``sleep`` frees the accelerator for a trainer, ``wake`` takes it back."""

    op: Literal["sleep", "wake"]
    id: str


class Cancel(Frozen):
    """Stop the request ``target``; its reply comes with ``cancelled``."""

    op: Literal["cancel"] = "cancel"
    id: str
    target: str


class Shutdown(Frozen):
    """End everything; the grader exits after its reply."""

    op: Literal["shutdown"] = "shutdown"
    id: str


Request = Annotated[
    GraderSetup | Evaluate | Generate | Gate | Scan | HiddenTest | Rest | Cancel | Shutdown, Field(discriminator="op")
]


class Progress(Frozen):
    """``done`` of ``total`` (problem, sample) pairs; ``note`` is a phase in words (``P0 hidden``)."""

    kind: Literal["progress"] = "progress"
    id: str
    done: int
    total: int
    note: str = ""


class Noticed(Frozen):
    """Something the grader saw that belongs in the journal; ``level`` says as which event."""

    kind: Literal["noticed"] = "noticed"
    level: Literal["integrity", "warning"]
    what: str
    where: str = ""
    detail: str = ""


class Reply(Frozen):
    """The end of a request. ``error`` is an infrastructure failure, never a score; ``fault`` says of what, if known."""

    kind: Literal["reply"] = "reply"
    id: str
    ok: bool
    cancelled: bool = False
    error: str = ""
    fault: Literal["", "problems"] = ""
    result: dict[str, Any] = {}


class SetupResult(Frozen):
    """``result`` of setup. ``overlap``: do validation and hidden share a problem (exact or normalised text)?
    ``same``: they are the same problems, every one of both."""

    validation: SplitInfo
    hidden: SplitInfo
    overlap: bool
    same: bool = False
    engine: str
    weak: tuple[str, ...]


class GateResult(Frozen):
    """``result`` of gate. ``refused`` is one line for the agent; norms are relative to the base, per tensor."""

    accepted: bool
    refused: str = ""
    format: Literal["adapter", "full"] = "full"
    sha256: str = ""
    bytes: int = 0
    no_change: bool = False
    delta_norm: float = 0.0
    delta_norm_max: float = 0.0
    delta_norm_max_tensor: str = ""


class Overlap(Frozen):
    """A graded problem in a text of the agent's. ``via``: what had to be undone to see it (``base64>gzip``)."""

    part: str
    path: str
    line: int
    problem: str
    how: str
    via: str = ""


class Foreign(Frozen):
    """A file that is no text: ``what`` it begins as ("" for opaque bytes) and how many ``bytes`` of it are opaque."""

    part: str
    path: str
    what: str = ""
    bytes: int = 0


class ScanResult(Frozen):
    """``result`` of scan. ``not_checked``: nothing was found, but not everything could be looked into (``unchecked``).

    ``broken``: parts that made their reader fail, which no honest file does. ``given``: problems that occur in what
    every agent is given; they cannot be looked for.
    """

    status: Literal["clean", "found", "not_checked"] = "not_checked"
    overlaps: tuple[Overlap, ...] = ()
    more: int = 0
    foreign: tuple[Foreign, ...] = ()
    opaque: dict[str, int] = {}
    unchecked: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    bytes: int = 0


class HiddenResult(Frozen):
    """``result`` of hidden: both evaluations and the paired difference; P* = c00 gives Δ = 0 from one evaluation."""

    initial: ScoreFile
    selected: ScoreFile
    delta: Delta
    status: Literal["ok", "candidate_crash"] = "ok"
    overlap: ScanResult = ScanResult()
