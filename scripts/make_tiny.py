"""Make tasks/models/tiny: a 1.91 M parameter Qwen3, pre-trained from scratch on procedural text, by steps.

Run with the model environment's python, from anywhere:

    ~/.cache/vibetraining-bench/model-env/bin/python scripts/make_tiny.py [--out DIR] [--steps N]

What it must become: a base that has seen the questions' language, the answer format and much bad arithmetic, so that it
scores next to nothing by itself and learns a notation within half a minute. No pre-training question is one of the
validation or hidden splits (their seeds are read here; this script never runs in a sandbox).
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tasks.aime import mini, pool
from tasks.aime.text import INSTRUCTION, prompt

ROOT = Path(__file__).resolve().parents[1]
SEED = "pre"
VOCABULARY = 704  # what the words of the questions need, rounded up to a multiple of 64
ROWS, LENGTH = 8, 256
PEAK_RATE = 3e-3
MATRIX_RATE = 0.02
PROBLEM_SHARE, LIST_SHARE = 0.82, 0.06  # of the documents; the others are lines of arithmetic
IGNORED = -100
SPLIT = r"\d|<<|>>|[+\-*/=]| ?[A-Za-z]+|\\boxed|[^\sA-Za-z0-9]|\s"
CHAT = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def make_tokenizer(problems: list[mini.MiniProblem]) -> PreTrainedTokenizerFast:
    """Byte-level BPE in which every digit is its own token, so that arithmetic is about digits."""
    corpus = [text for p in problems for text in (p.question, mini.solution_calculator(p), mini.solution_plain(p))] + [
        f"{INSTRUCTION} The answer is. Let me think about it again."
    ] * 50
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        corpus,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=[
                AddedToken(t, special=True) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<unk>")
            ],
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        ),
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token="<unk>",
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT
    return fast


def noisy_solution(problem: mini.MiniProblem, draw: random.Random) -> str:
    """A plain solution as found in the wild: a third end wrong, a third have no box, some ramble."""
    chance, text = draw.random(), mini.solution_plain(problem)
    if chance < 0.35:
        off = draw.choice((-10, -1, 1, 2, 9, 10, 100))
        return text.replace(mini.boxed(problem.answer), mini.boxed((problem.answer + off) % 1000))
    if chance < 0.65:
        return text.replace(mini.boxed(problem.answer), f"The answer is {problem.answer}.")
    return "Let me think about it again. " * 6 + text if chance < 0.75 else text


def arithmetic(draw: random.Random) -> str:
    """Six lines of true sums, differences and products."""
    lines = []
    for _ in range(6):
        operator = draw.choice("+-*")
        a, b = draw.randint(5, 500), draw.randint(5, 400)
        if operator == "*":
            a, b = draw.randint(2, 30), draw.randint(2, 30)
        if operator == "-" and b > a:
            a, b = b, a
        lines.append(f"{a}{operator}{b}={mini.evaluate(f'{a}{operator}{b}')}")
    return "\n".join(lines)


def name_list(draw: random.Random) -> tuple[str, str]:
    """Who has how many, and the same asked again in another order: practice in finding a number in a text."""
    names = draw.sample(mini.NAMES, draw.randint(4, 7))
    held = {name: draw.randint(2, 30) if draw.random() < 0.4 else draw.randint(10, 999) for name in names}
    things = draw.choice(mini.THINGS)
    told = ", ".join(f"{name} has {count}" for name, count in held.items()) + f" {things}.\n"
    asked = [draw.choice(names) for _ in range(2 * len(names))]
    return told, "\n".join(f"{name}: {held[name]}" for name in asked)


Document = tuple[list[int], list[int]]  # token ids, and labels (IGNORED where the text says nothing predictable)


def documents(tokenizer: PreTrainedTokenizerFast, problems: list[mini.MiniProblem]) -> Iterator[Document]:
    """Documents without end: problems in order, other texts between them."""
    draw = random.Random(SEED)
    while True:
        for problem in problems:
            while (chance := draw.random()) >= PROBLEM_SHARE:
                given, text = name_list(draw) if chance < PROBLEM_SHARE + LIST_SHARE else ("", arithmetic(draw))
                yield document(tokenizer, given, text)
            message = [{"role": "user", "content": prompt(problem.question)}]
            turn = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
            yield document(tokenizer, str(turn), noisy_solution(problem, draw))


def document(tokenizer: PreTrainedTokenizerFast, given: str, text: str) -> Document:
    """Only ``text`` and the end token are learned; ``given`` is what they follow from."""
    head, tail = tokenizer(given).input_ids, tokenizer(text + "<|im_end|>").input_ids
    return head + tail, [IGNORED] * len(head) + tail


def batches(stream: Iterator[Document]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """(ROWS, LENGTH) of token ids and of labels, documents packed end to end."""
    size, ids, labels = ROWS * LENGTH, list[int](), list[int]()
    while True:
        while len(ids) < size:
            more_ids, more_labels = next(stream)
            ids += more_ids
            labels += more_labels
        yield torch.tensor(ids[:size]).view(ROWS, LENGTH), torch.tensor(labels[:size]).view(ROWS, LENGTH)
        del ids[:size], labels[:size]


def new_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=192,
            intermediate_size=576,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=48,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
        )
    )


class Optimizer:
    """Muon for the matrices inside the layers, AdamW for the rest: copying is learned in a third of AdamW's steps."""

    def __init__(self, model: Qwen3ForCausalLM) -> None:
        inside = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
        known = {id(p) for p in inside}
        self.rest = [p for p in model.parameters() if id(p) not in known]
        self.matrices = [(p, torch.zeros_like(p)) for p in inside]
        self.adamw = torch.optim.AdamW(self.rest, betas=(0.9, 0.95), weight_decay=0.05)

    def step(self, share: float) -> None:
        """Apply the gradients at ``share`` of the peak rates, and clear them."""
        for group in self.adamw.param_groups:
            group["lr"] = PEAK_RATE * share
        torch.nn.utils.clip_grad_norm_(self.rest, 1.0)
        self.adamw.step()
        self.adamw.zero_grad()
        rate = MATRIX_RATE * share
        with torch.no_grad():
            for matrix, momentum in self.matrices:
                assert matrix.grad is not None
                momentum.lerp_(matrix.grad, 0.05)
                change = orthogonal(matrix.grad.lerp(momentum, 0.95))
                matrix.mul_(1 - 0.05 * rate).add_(
                    change, alpha=-rate * max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5
                )
                matrix.grad = None


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """Nearly the orthogonal matrix next to ``matrix``: four Newton–Schulz steps (Jordan et al., 2024)."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.T if tall else matrix) / (matrix.norm() + 1e-7)
    for _ in range(4):
        gram = x @ x.T
        x = 3.4445 * x + (2.0315 * gram @ gram - 4.7750 * gram) @ x
    return x.T if tall else x


def pretrain(model: Qwen3ForCausalLM, stream: Iterator[tuple[torch.Tensor, torch.Tensor]], steps: int) -> float:
    """A warm-up of 30 steps, then a linear decline to a twentieth; returns the mean loss of the last 50 steps.

    In float32: a CPU that emulates bfloat16 is several times slower with it.
    """
    optimizer, began, losses = Optimizer(model), time.monotonic(), list[float]()
    for step in range(steps):
        ids, labels = next(stream)
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
        kept = labels[:, 1:] != IGNORED
        loss = torch.nn.functional.cross_entropy(model.lm_head(hidden[kept]), labels[:, 1:][kept])
        loss.backward()
        optimizer.step(min(1.0, (step + 1) / 30) * (1 - 0.95 * step / steps))
        losses.append(float(loss.item()))
        if step % 50 == 49:
            rate = (step + 1) * ROWS * LENGTH / (time.monotonic() - began)
            print(f"step {step + 1}/{steps} loss {sum(losses[-50:]) / 50:.3f} {rate:.0f} tokens/s", flush=True)
    return sum(losses[-50:]) / len(losses[-50:])


def save(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """bf16 safetensors, configurations and the tokenizer; greedy by default, stopping at either end token."""
    out.mkdir(parents=True, exist_ok=True)
    model.generation_config = GenerationConfig(
        do_sample=False,
        eos_token_id=[tokenizer.eos_token_id, tokenizer.pad_token_id],
        pad_token_id=tokenizer.pad_token_id,
    )
    model.to(torch.bfloat16).save_pretrained(out)
    tokenizer.save_pretrained(out)
    for path in out.iterdir():
        path.chmod(0o644)  # save_pretrained leaves weights unreadable to other users


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "tasks" / "models" / "tiny")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--problems", type=int, default=9_000)
    parser.add_argument("--threads", type=int, default=1, help="the sums' order, and so the bytes, depend on it")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    problems = mini.generate(SEED, options.problems, pool.graded_questions())
    tokenizer = make_tokenizer(problems[:4000])
    model = new_model(tokenizer)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters", flush=True)
    loss = pretrain(model, batches(documents(tokenizer, problems)), options.steps)
    save(model, tokenizer, options.out)
    digest = hashlib.sha256((options.out / "model.safetensors").read_bytes()).hexdigest()
    print(f"loss {loss:.3f}; model.safetensors sha256 {digest}")


if __name__ == "__main__":
    main()
