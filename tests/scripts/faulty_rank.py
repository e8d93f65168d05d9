"""Run by `test_faults.py` under torchrun: `faulty_rank.py FAULT RECIPE ...`, where one rank meets a fault."""

import os
import resource
import signal
import sys

import torch

from numsft import NumSFTTrainer
from numsft.run import _end, main

FAULTS = {
    "none": None,
    "nan on rank 1": 1,
    "inf gradient on rank 1": 1,
    "full disk on rank 0": 0,
    "rank 1 is killed": 1,
    "sigterm to rank 1": 1,
}


def install(fault: str) -> None:
    compute_loss, training_step = NumSFTTrainer.compute_loss, NumSFTTrainer.training_step

    def losing(self, model, inputs, *args, **kwargs):
        loss = compute_loss(self, model, inputs, *args, **kwargs)
        if fault == "nan on rank 1" and self.state.global_step == 3:
            self._last_sums = torch.full_like(self._last_sums, float("nan"))
            loss = loss * float("nan")
        if fault == "inf gradient on rank 1" and self.state.global_step == 3:
            loss.register_hook(lambda gradient: gradient * float("inf"))
        return loss

    def stepping(self, *args, **kwargs):
        if self.state.global_step == 3:
            if fault == "full disk on rank 0":
                resource.setrlimit(
                    resource.RLIMIT_FSIZE, (20_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
                )
            if fault == "rank 1 is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if fault == "sigterm to rank 1":
                os.kill(os.getpid(), signal.SIGTERM)
        return training_step(self, *args, **kwargs)

    NumSFTTrainer.compute_loss, NumSFTTrainer.training_step = losing, stepping


if __name__ == "__main__":
    if FAULTS[sys.argv[1]] == int(os.environ["RANK"]):
        install(sys.argv[1])
    _end(main(sys.argv[2:]))
