"""Small data sets and a trainer on them, for the tests that train."""

from __future__ import annotations

import random

from datasets import Dataset
from tiny import tiny_llama, tiny_tokenizer

from numsft import NumSFTConfig, NumSFTTrainer


def sums_dataset(rows: int = 8, seed: int = 0) -> Dataset:
    """Prompt and completion of sums; every fourth completion is words, without a digit."""
    draw = random.Random(seed)
    prompts, completions = [], []
    for index in range(rows):
        a, b = draw.randint(1, 999), draw.randint(1, 99)
        prompts.append(f"{a}+{b}=")
        completions.append("no digit here" if index % 4 == 3 else f"{a + b}.{draw.randint(0, 99)}" + " ok" * (index % 3))
    return Dataset.from_dict({"prompt": prompts, "completion": completions})


def tiny_trainer(tmp_path, *, model=None, dataset=None, **settings) -> NumSFTTrainer:
    """A trainer on sums with plain SGD, a tiny Llama and nothing written but the output folder."""
    trainer_only = {
        key: settings.pop(key) for key in ("peft_config", "eval_dataset", "callbacks") if key in settings
    }
    config = dict(
        output_dir=str(tmp_path),
        per_device_train_batch_size=8,
        max_steps=1,
        optim="sgd",
        learning_rate=0.1,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        shuffle_dataset=False,
        activation_checkpointing=False,
        seed=0,
    )
    return NumSFTTrainer(
        model=tiny_llama(vocab_size=104) if model is None else model,
        args=NumSFTConfig(**{**config, **settings}),
        train_dataset=sums_dataset() if dataset is None else dataset,
        processing_class=tiny_tokenizer(),
        **trainer_only,
    )
