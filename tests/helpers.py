"""Small data sets and a trainer on them, for the tests that train; scripts of the repository as modules."""

from __future__ import annotations

import importlib.util
import random
import sys

import torch
from datasets import Dataset
from tiny import tiny_llama, tiny_tokenizer
from transformers import TrainerCallback

from numsft import NumSFTConfig, NumSFTTrainer


def sums_dataset(rows: int = 8, seed: int = 0) -> Dataset:
    """Prompt and completion of sums; every fourth completion is words, without a digit."""
    draw = random.Random(seed)
    prompts, completions = [], []
    for index in range(rows):
        a, b = draw.randint(1, 999), draw.randint(1, 99)
        prompts.append(f"{a}+{b}=")
        completions.append(
            "no digit here" if index % 4 == 3 else f"{a + b}.{draw.randint(0, 99)}" + " ok" * (index % 3)
        )
    return Dataset.from_dict({"prompt": prompts, "completion": completions})


def tiny_trainer(tmp_path, *, model=None, dataset=None, tokenizer=None, **settings) -> NumSFTTrainer:
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
        train_sampling_strategy="sequential",
        activation_checkpointing=False,
        seed=0,
    )
    return NumSFTTrainer(
        model=tiny_llama(vocab_size=104) if model is None else model,
        args=NumSFTConfig(**{**config, **settings}),
        train_dataset=sums_dataset() if dataset is None else dataset,
        processing_class=tiny_tokenizer() if tokenizer is None else tokenizer,
        **trainer_only,
    )


def script_module(path):
    """A script of the repository, as a module; like when it is run, it finds the scripts beside it."""
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem + "_script", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


class GradientRecorder(TrainerCallback):
    """Keeps the gradients of every optimiser step, as float64 copies."""

    def __init__(self) -> None:
        self.steps: list[dict[str, torch.Tensor]] = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.steps.append(
            {
                name.removeprefix("module."): parameter.grad.double().clone()
                for name, parameter in model.named_parameters()
                if parameter.grad is not None
            }
        )


def train_recorded(trainer) -> tuple[list[dict[str, torch.Tensor]], list[dict[str, float]]]:
    """Train; return the gradients of each step and the log entries that have a loss."""
    recorder = GradientRecorder()
    trainer.add_callback(recorder)
    trainer.train()
    return recorder.steps, [entry for entry in trainer.state.log_history if "loss" in entry]


def assert_gradients_equal(ours, theirs, tolerance: float = 1e-5) -> None:
    """Each parameter's gradient is within `tolerance` of the other's norm."""
    assert ours.keys() == theirs.keys()
    for name in ours:
        error = (ours[name] - theirs[name]).norm()
        assert error <= tolerance * theirs[name].norm().clamp(min=1e-7), (
            f"{name}: {error} of {theirs[name].norm()}"
        )
