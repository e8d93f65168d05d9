"""Run by `test_sharding.py` under torchrun: the steps of `sharding.py` under DeepSpeed ZeRO-3, on CPUs."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_grad
from sharding import LEARNING_RATE, OneProcess, build, micro_batches, train
from transformers.integrations.deepspeed import HfDeepSpeedConfig, is_deepspeed_zero3_enabled

from numsft.trl_bridge import base_model_of

CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 2,
    "zero_optimization": {
        "stage": 3,
        "stage3_param_persistence_threshold": 0,
        "stage3_max_live_parameters": 0,  # what has been used is taken apart again at once
        "stage3_max_reuse_distance": 0,
    },
    "zero_allow_untested_optimizer": True,
    "gradient_clipping": 0.0,  # its default is 1
}


class Zero3(OneProcess):
    averaged_over = 2

    def __init__(self, model):
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.bare = model
        self.model, *_ = deepspeed.initialize(
            model=model, optimizer=torch.optim.SGD(trained, lr=LEARNING_RATE), config=CONFIG
        )

    def batches(self, step):
        return micro_batches(step, dist.get_rank())

    def backward(self, loss, last):
        self.model.set_gradient_accumulation_boundary(last)
        # As transformers calls it: the loss is scaled by the whole step already.
        self.model.backward(loss, scale_wrt_gas=False)
        if not last:
            self.model.step()

    def gradients(self):
        grads = {n: safe_get_full_grad(p) for n, p in self.trained()}
        return {name: grad.clone() for name, grad in grads.items() if grad is not None}

    def step(self):
        self.model.step()

    def weights(self):
        return {name: safe_get_full_fp32_param(p).clone() for name, p in self.trained()}

    def trained(self):
        return [(name, p) for name, p in self.bare.named_parameters() if p.requires_grad]

    def total(self, value):
        dist.all_reduce(value)
        return value


def main(out: str, cases: str) -> None:
    # DeepSpeed would compile a faster collective for the CPU here; gloo's needs no compiler.
    deepspeed.comm.torch.build_shm_op = lambda: None
    deepspeed.init_distributed("gloo")
    seen = {}
    for name, case in json.loads(cases).items():
        # transformers knows of ZeRO-3 only while such a config lives; a custom loop may not have one.
        config = HfDeepSpeedConfig(CONFIG) if case.get("known_to_transformers") else None
        assert is_deepspeed_zero3_enabled() == (config is not None)
        runner = Zero3(build(case["head"]))
        seen[name] = train(runner, case.get("loss", "numsft"))
        head = base_model_of(runner.bare).get_output_embeddings()
        seen[name]["head_elements_left"] = head.weight.numel()
        runner.model.destroy()
        del config
    torch.save(seen, Path(out) / f"rank{dist.get_rank()}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
