"""The decode loop itself, in the model environment's Python: what is computed once for all rows changes no text."""

from __future__ import annotations

import itertools
import json

from engine_kit import TINY, run_inside

TEXTS = """
import json, sys
from pathlib import Path
import torch, transformers
from inside import generate
from inside.generate import Generator, Row
from inside.weights import Weights
model = Weights(Path(sys.argv[1]), "float32", "cpu").model
tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
generator = Generator(model, tokenizer, frozenset([tokenizer.eos_token_id]), 0)
prompts = [tokenizer("Ana buys boxes of stamps. " * 4 + more).input_ids for more in json.loads(sys.argv[2])]
rows = [Row(tuple(p), 12, temperature=0.7 * (i % 2), seed=i) for i, p in enumerate(prompts)]
alone = [generator.run([row])[0].text for row in rows]
found = generate.shared([row.tokens for row in rows])
together = [w.text for w in generator.run(rows)]
print(json.dumps({"alone": alone, "together": together, "shared": found, "least": min(map(len, prompts))}))
"""
SHARED = """
import json, sys
from inside.generate import shared
print(json.dumps([shared([tuple(p) for p in prompts]) for prompts in json.loads(sys.argv[1])]))
"""


def test_a_common_beginning_is_computed_once_and_changes_no_text():
    ends = ["How many?", "How many are there in 3 boxes of 12?", "9 + 5 =", "How", "Ben has 3."]
    found = run_inside(TEXTS, str(TINY), json.dumps(ends))
    assert 20 < found["shared"] < found["least"]
    assert found["together"] == found["alone"]
    assert len(set(found["alone"])) > 2, "the texts differ, so that a mix-up of rows would show"


def test_what_is_shared_is_a_beginning_of_all_and_leaves_each_a_token():
    long = list(range(20))
    cases = [[long, long], [long, long[:12]], [long, [*long[:9], 99, 98]], [long, [7]], [long], [long[:5], long[:6]]]
    found = run_inside(SHARED, json.dumps(cases))
    assert found == [19, 11, 9, 0, 0, 0]
    for count, prompts in zip(found, cases, strict=True):
        assert all(a[:count] == b[:count] for a, b in itertools.pairwise(prompts))
