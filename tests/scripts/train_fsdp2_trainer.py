"""Run by `test_sharding.py` under `accelerate launch --use_fsdp`: the trainer's steps under FSDP2, on CPUs.

accelerate 1.15 takes two processes without a GPU for `MULTI_CPU` whatever it is told, and would train with
DDP. So this one decision is made for it here; everything after it is accelerate's and transformers' own.
"""

import functools
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from helpers import sums_dataset, tiny_trainer
from peft import LoraConfig
from sharding import CollectiveCounter
from tiny import tiny_llama
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

from numsft.trl_bridge import base_model_of

# Rows of two steps of 2 ranks x 2 micro-batches x 2 rows: rank 1 has no digit in the first, rank 0 none in
# the second (every fourth row of `sums_dataset` has none).
ORDER = [0, 1, 3, 7, 2, 4, 11, 15, 19, 23, 5, 6, 27, 31, 8, 9]


def be_fsdp_on_a_cpu() -> None:
    initialise = AcceleratorState.__init__

    @functools.wraps(initialise)
    def patched(self, *args, **kwargs):
        initialise(self, *args, **kwargs)
        if self._shared_state.get("distributed_type") == DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.FSDP
            self.fsdp_plugin = FullyShardedDataParallelPlugin()

    AcceleratorState.__init__ = patched


class Recorder(TrainerCallback):
    """Keeps whole gradients and the collective calls of each step, from its data to its gradients."""

    def __init__(self):
        self.steps, self.collectives = [], []

    def watch(self, trainer):
        collect = trainer.get_batch_samples

        def counted(*args):
            self.counter = CollectiveCounter().__enter__()
            return collect(*args)

        trainer.get_batch_samples = counted

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.counter.__exit__(None, None, None)
        self.collectives.append(dict(self.counter.calls))
        self.steps.append({n: whole(p.grad) for n, p in model.named_parameters() if p.grad is not None})


def whole(tensor):
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().double().clone()


def train_case(out: Path, case: dict, sharded: bool) -> dict:
    """Train the trainer's way; return gradients, collective calls, logs, evaluation and trained weights."""
    options = dict(case)
    head = options.pop("head")
    if head in ("frozen", "saved"):
        options["peft_config"] = LoraConfig(
            r=4,
            target_modules=["q_proj", "v_proj", "up_proj"],
            modules_to_save=["lm_head"] if head == "saved" else None,
        )
    recorder = Recorder()
    trainer = tiny_trainer(
        out,
        model=tiny_llama(vocab_size=104, tied=head == "tied"),
        dataset=sums_dataset(32).select(ORDER),
        eval_dataset=sums_dataset(7, seed=5),
        callbacks=[recorder],
        max_steps=2,
        **options,
    )
    recorder.watch(trainer)
    trainer.train()
    layers = base_model_of(trainer.accelerator.unwrap_model(trainer.model)).model.layers
    assert isinstance(layers[0], FSDPModule) == sharded
    return {
        "steps": recorder.steps,
        "collectives": recorder.collectives,
        "logs": [entry for entry in trainer.state.log_history if "loss" in entry],
        "evaluation": trainer.evaluate(),
        "weights": {n: whole(p) for n, p in trainer.model.named_parameters() if p.requires_grad},
    }


def main(out: str, cases: str) -> None:
    be_fsdp_on_a_cpu()
    seen = {
        name: train_case(Path(out), {**case, "per_device_train_batch_size": 2}, sharded=True)
        for name, case in json.loads(cases).items()
    }
    torch.save(seen, Path(out) / f"rank{os.environ['RANK']}.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
