"""What gets into the engine: adapters merged as PEFT merges, full weights, and a zoo that is refused by name."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from engine_kit import ADAPTER, BASE, CONFIG, TINY, model_env, run_inside, until_computing

from grader.engines.base import Completion, EngineError
from grader.engines.transformers import TransformersEngine
from grader.protocol import ModelRef
from isolation.sandbox import start

pytestmark = pytest.mark.asyncio(loop_scope="module")
Make = Callable[..., TransformersEngine]
COMPARE = """
import json, sys, torch
from pathlib import Path
from safetensors.torch import load_file
from inside.weights import Weights
base, models = Path(sys.argv[1]), Path(sys.argv[2])
found = {}
for kind in ("float32", "bfloat16"):
    weights = Weights(base, kind, "cpu")
    before = {k: v.clone() for k, v in weights.model.state_dict().items()}
    for name in ("m01", "m02"):
        weights.load("adapter", models / name / "adapter")
        ours = {k: v.clone() for k, v in weights.model.state_dict().items()}
        theirs = load_file(models / name / kind / "model.safetensors")
        gaps = {k: (ours[k].float() - v.float()).abs() / v.float().abs().clamp_min(1e-2) for k, v in theirs.items()}
        worst = max(gap.max().item() for gap in gaps.values())
        changed = sum(not torch.equal(ours[k], before[k]) for k in theirs)
        weights.load("full", models / "m03" / "weights")
        weights.load("adapter", models / name / "adapter")
        again = all(torch.equal(v, ours[k]) for k, v in weights.model.state_dict().items())
        tied = weights.model.lm_head.weight.data_ptr() == weights.model.model.embed_tokens.weight.data_ptr()
        found[f"{kind} {name}"] = dict(worst=worst, changed=changed, again=again, tied=tied)
    weights.load("base", base)
    found[kind] = all(torch.equal(v, before[k]) for k, v in weights.model.state_dict().items())
print(json.dumps(found))
"""
REFUSED = {
    "bad-dora": "use_dora", "bad-pissa": "init_lora_weights", "bad-pattern": "rank_pattern", "bad-rank": "rank 4",
    "bad-half": "one half", "bad-name": "x.weight", "bad-shape": "shape", "bad-missing": "lack",
    "bad-extra": "model.evil", "bad-nan": "not finite", "bad-bytes": "cannot be read",
    "bad-template": "chat template", "slow-template": "longer than",
    "no-such-model": "adapter_config.json", "../m01": "id of a model",
}  # fmt: skip


async def test_merges_are_pefts_and_leave_no_trace(models: Path) -> None:
    found = await asyncio.to_thread(run_inside, COMPARE, str(TINY), str(models))
    for kind, bound in (("float32", 1e-5), ("bfloat16", 2**-6)):  # bfloat16: PEFT rounds twice, we once
        assert found[kind] is True
        for name in ("m01", "m02"):
            one = found[f"{kind} {name}"]
            assert one["worst"] <= bound and one["changed"] == 28 and one["again"] and one["tied"]


async def ask(server: TransformersEngine) -> str:
    await server.sessions(["s"], ())
    messages = (("user", "Ana buys 3 boxes of 4 stamps. How many stamps?"),)
    call = Completion(max_tokens=24, messages=messages, temperature=2.0, seed=3)  # other weights, another draw
    async with asyncio.timeout(60):
        reply = await server.complete("s", call)
    await server.sessions((), ["s"])
    return reply.text


async def test_swaps_come_and_go(served: TransformersEngine) -> None:
    await served.load(BASE)
    base = await ask(served)
    await served.load(ADAPTER)
    adapter = await ask(served)
    await served.load(ModelRef(id="m03", format="full"))
    full = await ask(served)
    await served.load(BASE)
    assert await ask(served) == base != adapter
    assert full != base


async def test_the_zoo_is_refused_by_name_and_the_base_still_serves(served: TransformersEngine) -> None:
    await served.load(BASE)
    base, first = await ask(served), served.pid
    for name, why in REFUSED.items():
        full = any(word in name for word in ("shape", "missing", "extra", "nan", "bytes", "template"))
        with pytest.raises(EngineError, match=why):
            await served.load(ModelRef(id=name, format="full" if full else "adapter"))
        assert await ask(served) == base, name
    assert served.pid == first


async def test_a_models_own_template_is_used_and_forgotten(served: TransformersEngine) -> None:
    await served.load(ModelRef(id="m03", format="full"))
    usual = await ask(served)
    await served.load(ModelRef(id="own-template", format="full"))
    own = await ask(served)
    await served.load(ModelRef(id="m03", format="full"))
    assert await ask(served) == usual != own


async def test_an_engine_that_cannot_start_says_why(engine: Make) -> None:
    broken = engine(CONFIG.model_copy(update={"device": "cuda"}))
    with pytest.raises(EngineError, match="no CUDA device"):
        await broken.start()


async def test_an_engine_without_room_says_that_it_is_memory(engine: Make) -> None:
    """A control group kills it, or, where there is none, its own allocation fails: the word is the same."""
    small = engine(memory=96 << 20)
    with pytest.raises(EngineError, match=r"(?i)did not start: .*memory"):
        await small.start()


async def test_a_death_at_load_says_why_and_the_next_load_starts_anew(engine: Make) -> None:
    server = engine()
    await server.start()
    await server.load(BASE)
    await server.sessions(["s"], ())
    first = server.pid
    loading = asyncio.create_task(server.load(ModelRef(id="slow-template", format="full")))  # takes five seconds
    await until_computing(first)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(EngineError, match="died while loading slow-template: signal 9"):
        await loading
    await server.load(BASE)
    assert server.pid != first
    assert await ask(server)  # the session that was open is known to the new server


async def test_the_servers_sandbox_has_no_code_of_ours_to_import(engine: Make) -> None:
    server = engine()
    await server.start()
    code = """
for name in ("tasks", "runner", "grader", "isolation"):
    try:
        __import__(name)
    except ImportError as error:
        print(error)
"""
    spec = replace(server._spec(), argv=(str(model_env() / "bin" / "python"), "-P", "-c", code))
    box = await start(spec, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE)
    assert box.stdout is not None
    seen = (await box.stdout.read()).decode()
    await box.kill()
    assert seen == "".join(f"No module named '{name}'\n" for name in ("tasks", "runner", "grader", "isolation"))
