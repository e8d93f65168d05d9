"""Train a few steps in a process of its own and print the peak of its memory above what it had before the
model.

Run with a JSON object: sizes of the model, `settings` of the run, `lora` (options of LoraConfig) or null.
"""

import json
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from datasets import Dataset
from helpers import tiny_trainer
from peft import LoraConfig
from tiny import tiny_llama

torch.set_num_threads(1)


def memory_of_process(name: str) -> int:
    """Bytes of `VmRSS` (now) or `VmHWM` (the peak since it was last reset)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {name}")


def rows_of(length: int, count: int) -> Dataset:
    """Rows of equal length, so that no padding mask is needed."""
    draw = torch.Generator().manual_seed(0)
    rows = torch.randint(4, 100, (count, length), generator=draw).tolist()
    return Dataset.from_dict({"input_ids": rows, "labels": rows})


def main() -> None:
    spec = json.loads(sys.argv[1])
    folder, settings = spec["folder"], spec["settings"]
    rows = settings["per_device_train_batch_size"] * settings.get("gradient_accumulation_steps", 1)
    # What a first training loads stays loaded: libraries, caches, worker state.
    tiny_trainer(folder, optim=settings["optim"], peft_config=_lora(spec)).train()

    before = memory_of_process("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    shape = spec["model"]
    model = tiny_llama(**shape)
    trainer = tiny_trainer(
        folder,
        model=model,
        dataset=rows_of(spec["length"], 2 * rows),
        max_steps=2,
        max_length=spec["length"],
        max_grad_norm=1.0,
        peft_config=_lora(spec),
        **settings,
    )
    del model
    trainer.train()
    print(json.dumps({"peak": memory_of_process("VmHWM") - before}))


def _lora(spec: dict) -> LoraConfig | None:
    return None if spec["lora"] is None else LoraConfig(task_type="CAUSAL_LM", **spec["lora"])


if __name__ == "__main__":
    main()
