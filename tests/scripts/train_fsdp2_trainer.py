"""Run by `test_sharding.py` under `accelerate launch --use_fsdp`: the trainer's steps under FSDP2, on CPUs.

accelerate 1.15 takes two processes without a GPU for `MULTI_CPU` whatever it is told, and would train with
DDP. So this one decision is made for it here; everything after it is accelerate's and transformers' own.
"""

import functools
import json
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
    """Keeps whole gradients and the collective calls of each step."""

    def __init__(self):
        self.steps, self.collectives = [], []

    def on_step_begin(self, *args, **kwargs):
        self.counter = CollectiveCounter().__enter__()

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.counter.__exit__(None, None, None)
        self.collectives.append(dict(self.counter.calls))
        self.steps.append({n: whole(p.grad) for n, p in model.named_parameters() if p.grad is not None})


def whole(tensor):
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().double().clone()


def main(out: str, settings: str) -> None:
    options = json.loads(settings)
    order, head = options.pop("order"), options.pop("head")
    if head in ("frozen", "saved"):
        options["peft_config"] = LoraConfig(
            r=4,
            target_modules=["q_proj", "v_proj", "up_proj"],
            modules_to_save=["lm_head"] if head == "saved" else None,
        )
    sharded = options.pop("sharded")
    if sharded:
        be_fsdp_on_a_cpu()
    recorder = Recorder()
    trainer = tiny_trainer(
        out,
        model=tiny_llama(vocab_size=104, tied=head == "tied"),
        dataset=sums_dataset(32).select(order),
        eval_dataset=sums_dataset(7, seed=5),
        callbacks=[recorder],
        **options,
    )
    trainer.train()
    layers = base_model_of(trainer.accelerator.unwrap_model(trainer.model)).model.layers
    assert isinstance(layers[0], FSDPModule) == sharded
    seen = {
        "steps": recorder.steps,
        "collectives": recorder.collectives,
        "logs": [entry for entry in trainer.state.log_history if "loss" in entry],
        "evaluation": trainer.evaluate(),
        "weights": {n: whole(p) for n, p in trainer.model.named_parameters() if p.requires_grad},
    }
    torch.save(seen, Path(out) / f"rank{trainer.args.process_index}.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
