"""Make tasks/models/tiny: a 1.87 M parameter Qwen3, pre-trained from scratch on procedural text, by steps.

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
VOCABULARY = 512
ROWS, LENGTH = 8, 256
PEAK_RATE = 2e-3
PROBLEM_SHARE = 0.6  # of the documents; the others are lines of arithmetic
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


def documents(tokenizer: PreTrainedTokenizerFast, problems: list[mini.MiniProblem]) -> Iterator[list[int]]:
    """Token lists without end: problems in order, arithmetic between them."""
    draw = random.Random(SEED)
    while True:
        for problem in problems:
            while draw.random() >= PROBLEM_SHARE:
                yield tokenizer(arithmetic(draw) + "<|im_end|>").input_ids
            message = [{"role": "user", "content": prompt(problem.question)}]
            turn = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
            yield tokenizer(turn + noisy_solution(problem, draw) + "<|im_end|>").input_ids


def batches(stream: Iterator[list[int]]) -> Iterator[torch.Tensor]:
    """(ROWS, LENGTH) of token ids, documents packed end to end."""
    buffer: list[int] = []
    while True:
        while len(buffer) < ROWS * LENGTH:
            buffer += next(stream)
        yield torch.tensor(buffer[: ROWS * LENGTH]).view(ROWS, LENGTH)
        del buffer[: ROWS * LENGTH]


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


def pretrain(model: Qwen3ForCausalLM, stream: Iterator[torch.Tensor], steps: int) -> float:
    """AdamW with a warm-up of 30 steps and a linear decline to a twentieth; returns the last loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.95), weight_decay=0.05)
    began, value = time.monotonic(), float("nan")
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = PEAK_RATE * min(1.0, (step + 1) / 30) * (1 - 0.95 * step / steps)
        tokens = next(stream)
        logits = model(input_ids=tokens, use_cache=False).logits  # float32: bf16 is slow where a CPU emulates it
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        value = float(loss.item())
        if step % 50 == 49:
            rate = (step + 1) * ROWS * LENGTH / (time.monotonic() - began)
            print(f"step {step + 1}/{steps} loss {value:.3f} {rate:.0f} tokens/s", flush=True)
    return value


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
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--problems", type=int, default=18_000)
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
