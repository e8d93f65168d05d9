"""Run by `test_sharding.py` under torchrun: the steps of `sharding.py` under FSDP2, for several cases."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.distributed as dist
from sharding import OneProcess, build, micro_batches, train
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from numsft.trl_bridge import base_model_of


def shard(model, units: str, **options):
    """Shard the layers, then the rest: the head in the `root`, its own unit, or with the norm (`tail`).

    `tail` is how accelerate 1.15 wraps a model.
    """
    base = base_model_of(model)
    head, embedding = base.get_output_embeddings(), base.get_input_embeddings()
    for layer in base.model.layers:
        fully_shard(layer, **options)
    if units == "unit":
        fully_shard(head, **options)
    if units == "tail":
        tied = embedding.weight is head.weight
        if not tied:
            fully_shard(embedding, **options)
        group = [base.model.norm, *([embedding] if tied else []), head]
        fully_shard(group, **{**options, "reshard_after_forward": False})
    return fully_shard(model, **options)


class Fsdp2(OneProcess):
    averaged_over = 2

    def __init__(self, model, units, sync_each=False, **options):
        super().__init__(shard(model, units, **options))
        self.sync_each = sync_each

    def batches(self, step):
        return micro_batches(step, dist.get_rank())

    def backward(self, loss, last):
        self.model.set_requires_gradient_sync(last or self.sync_each)
        loss.backward()

    def gradients(self):
        return {name: whole(grad) for name, grad in super().gradients().items()}

    def weights(self):
        return {name: whole(weight) for name, weight in super().weights().items()}

    def total(self, value):
        dist.all_reduce(value)
        return value


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def main(out: str, cases: str) -> None:
    dist.init_process_group("gloo")
    seen = {}
    for name, case in json.loads(cases).items():
        options = {}
        if case.get("bf16"):
            options["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        runner = Fsdp2(build(case["head"]), case["units"], case.get("sync_each", False), **options)
        seen[name] = train(runner, case.get("loss", "numsft"))
    torch.save(seen, Path(out) / f"rank{dist.get_rank()}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
