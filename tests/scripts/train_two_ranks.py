"""Run by `test_distributed.py` under torchrun: train on sums and save what rank 0 saw."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from helpers import sums_dataset, tiny_trainer, train_recorded
from peft import LoraConfig


def main(out: str, settings: str) -> None:
    options = json.loads(settings)
    order = options.pop("order")
    if options.pop("lora", False):
        options["peft_config"] = LoraConfig(r=4, target_modules="all-linear")
    trainer = tiny_trainer(
        out, dataset=sums_dataset(16).select(order), eval_dataset=sums_dataset(7, seed=5), **options
    )
    steps, logs = train_recorded(trainer)
    evaluation = trainer.evaluate()
    if trainer.is_world_process_zero():
        torch.save({"steps": steps, "logs": logs, "evaluation": evaluation}, Path(out) / "seen.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
