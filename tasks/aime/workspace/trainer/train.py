"""T0: supervised fine-tuning with TRL, by LoRA or of all weights, and merging. Reads recipe.toml beside it.

    python trainer/train.py --data /in/data --base /in/base [--parent /in/m03 ...] --out /out

Writes an adapter (adapter_config.json, adapter_model.safetensors) or all weights (model.safetensors) into --out, in
bfloat16, and nothing else. One JSON line per logged step goes to the descriptor in VIBE_METRICS. The same seed, data
and machine give the same bytes. Exit code 2: the recipe, a row or a parent is wrong, said in one line.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # also where python was told to leave this folder out

from recipe import Recipe, read_recipe, read_rows, refuse
from weights import Start, fast_bfloat16, starting_point, write

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def encode(tokenizer: Any, rows: list[tuple[str, str]], max_length: int) -> list[dict[str, list[int]]]:
    """input_ids and labels of every row that is short enough. Only the completion and the end token are labelled.

    The prompt is rendered as the model server renders it: one user message, then the turn of the assistant.
    """
    turns = [
        tokenizer.apply_chat_template([{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True)
        for prompt, _ in rows
    ]
    heads = tokenizer(turns, add_special_tokens=False)["input_ids"]
    tails = tokenizer([completion for _, completion in rows], add_special_tokens=False)["input_ids"]
    examples = []
    for head, tail in zip(heads, tails, strict=True):
        ids = [*head, *tail, tokenizer.eos_token_id]
        if len(ids) <= max_length:
            examples.append({"input_ids": ids, "labels": [-100] * len(head) + ids[len(head) :]})
    left_out = len(rows) - len(examples)
    if not examples:
        refuse(f"every row is longer than max_length = {max_length} tokens")
    print(f"{len(examples)} rows, {left_out} longer than {max_length} tokens left out", flush=True)
    return examples


def require_accelerator(used: str = "cuda") -> None:
    """Refuse to go on without CUDA, or after training elsewhere, where the service demands it."""
    if os.environ.get("VIBE_REQUIRE_ACCELERATOR") == "1":
        import torch

        if used != "cuda" or not torch.cuda.is_available():
            refuse("the accelerator is required here, and training would not use it")


class Metrics:
    """JSON lines on the descriptor that the training service gave; without one, nothing."""

    def __init__(self) -> None:
        number = os.environ.get("VIBE_METRICS", "")
        self.stream = os.fdopen(int(number), "w", encoding="utf-8") if number.isdigit() else None
        self.began = time.monotonic()
        self.tokens: Any = 0

    def write(self, step: int, steps: int, loss: float, lr: float) -> None:
        row = {
            "step": step,
            "steps": steps,
            "loss": round(loss, 5),
            "lr": lr,
            "tokens": int(self.tokens),
            "seconds": round(time.monotonic() - self.began, 2),
        }
        line = json.dumps(row)
        print(line, flush=True)
        if self.stream is not None:
            self.stream.write(line + "\n")
            self.stream.flush()


def trainer_class(metrics: Metrics) -> type:
    """TRL's trainer with a cheaper loss; made here because TRL imports slowly, and rows are checked first."""
    import torch
    from trl import SFTTrainer

    class LabelledPositions(SFTTrainer):
        """Runs the LM head on labelled positions only: on a CPU TRL scores every prompt and padding token too."""

        def compute_loss(
            self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            inner = self.accelerator.unwrap_model(model)
            inner = inner.get_base_model() if hasattr(inner, "peft_config") else inner
            labels = inputs["labels"][:, 1:]
            hidden = inner.model(
                input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], use_cache=False
            ).last_hidden_state[:, :-1]
            kept = labels != -100
            logits = inner.lm_head(hidden[kept]).float()
            count = kept.sum() if num_items_in_batch is None else num_items_in_batch
            loss = torch.nn.functional.cross_entropy(logits, labels[kept], reduction="sum") / count
            metrics.tokens += inputs["attention_mask"].sum().detach()
            return (loss, None) if return_outputs else loss

        def log(self, logs: dict[str, float], *_: Any, **__: Any) -> None:
            if "loss" in logs:
                state = self.state
                metrics.write(state.global_step, state.max_steps, float(logs["loss"]), float(logs["learning_rate"]))

    return LabelledPositions


def trainable(recipe: Recipe, start: Start) -> Any:
    """The starting model itself, or with a new or a continued adapter on it."""
    from transformers import set_seed

    set_seed(recipe.seed)
    if recipe.method == "full":
        return start.model
    from peft import LoraConfig, PeftModel, get_peft_model

    if start.adapter is not None:
        return PeftModel.from_pretrained(start.model, str(start.adapter), is_trainable=True)
    config = LoraConfig(
        r=recipe.rank, lora_alpha=recipe.alpha, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    return get_peft_model(start.model, config)


def settings(recipe: Recipe, scratch: Path) -> Any:
    """The recipe in TRL's words. Nothing is saved while training, and nothing is reported anywhere but by ``log``."""
    import torch
    from trl import SFTConfig

    on_gpu = torch.cuda.is_available()
    return SFTConfig(
        output_dir=str(scratch),
        per_device_train_batch_size=recipe.batch_size,
        gradient_accumulation_steps=recipe.accumulate,
        learning_rate=recipe.learning_rate,
        num_train_epochs=recipe.epochs,
        max_steps=recipe.max_steps or -1,
        lr_scheduler_type=recipe.scheduler,
        warmup_steps=recipe.warmup_steps,
        weight_decay=recipe.weight_decay,
        logging_steps=recipe.log_every,
        logging_first_step=True,
        train_sampling_strategy="group_by_length" if recipe.group_by_length else "random",
        seed=recipe.seed,
        use_cpu=not on_gpu,
        bf16=on_gpu or fast_bfloat16(),
        gradient_checkpointing=recipe.gradient_checkpointing,
        dataloader_pin_memory=on_gpu,
        max_length=recipe.max_length,
        dataset_kwargs={"skip_prepare_dataset": True},
        save_strategy="no",
        report_to="none",
        optim="adamw_torch",
        disable_tqdm=True,
    )


def dataset(examples: list[dict[str, list[int]]]) -> Any:
    """The examples as the trainer wants them."""
    from datasets import Dataset

    return Dataset.from_list(examples)


def fit(recipe: Recipe, start: Start, tokenizer: Any, examples: list[dict[str, list[int]]], scratch: Path) -> Any:
    """Train and return the model: a PEFT model for ``lora``, else the model itself."""
    trainer = trainer_class(Metrics())(
        model=trainable(recipe, start),
        args=settings(recipe, scratch),
        train_dataset=dataset(examples),
        processing_class=tokenizer,
    )
    trainer.train()
    require_accelerator(next(trainer.model.parameters()).device.type)
    return trainer.model


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--parent", type=Path, action="append", default=[])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    recipe = read_recipe(Path(__file__).with_name("recipe.toml"))
    rows = [] if recipe.method == "merge" else read_rows(options.data)
    require_accelerator()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        start = starting_point(recipe, options.base, options.parent, scratch / "stacked")
        if recipe.method != "merge":
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(options.base)
            examples = encode(tokenizer, rows, recipe.max_length)
            write(fit(recipe, start, tokenizer, examples, scratch), start.on_base, options.out, scratch)
        elif start.adapter is not None:
            shutil.copytree(start.adapter, options.out, dirs_exist_ok=True)
        else:
            write(start.model, False, options.out, scratch)
    print("done", flush=True)


if __name__ == "__main__":
    main()
