"""How much of DEL's gradient is that of a 0/1 cost? Measured on the digits of held-out answers.

    python studies/arithmetic/del_limit.py [ce=FOLDER del=FOLDER ...]

Where digit logits stand far above 0, DEL is close to level x (1 - p_target). This script takes the logits of
SmolLM2 (and of the adapters that are named) at every digit of 240 answers, differentiates DEL and the 0/1
cost (NTL-WAS with `power: 0`) by the ten digit logits, and writes `del_limit.json`: their cosine, the
multiple of the 0/1 cost that fits DEL best, what share of DEL's squared gradient that leaves, and what share
of it moves all digit logits at once.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

import torch
from torch import Tensor

from numsft.diagnose.measure import read_logits
from numsft.evaluation.nupa.generate import generate
from numsft.losses import NUMBER_LOSSES
from numsft.losses.base import NumberLoss
from numsft.models import load_adapter_or_model, load_tokenizer
from numsft.numerals import NumberVocab
from numsft.objective import Objective
from numsft.recipes import load_recipe

HERE = Path(__file__).resolve().parent
ITEMS = 240


def gradients(loss: NumberLoss, logits: Tensor, classes: Tensor) -> Tensor:
    """Return each position's gradient by its ten digit logits, `[M, 10]`."""
    z = logits.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(z, classes, torch.arange(10.0, dtype=z.dtype)).sum(), z)
    return found


def compare(logits: Tensor, classes: Tensor) -> dict[str, float]:
    """Return how DEL's gradient relates to the 0/1 cost's, over all positions.

    Args:
        logits: `[M, 10]` float64.
        classes: `[M]` int64, the right digits.
    """
    of_del = gradients(NUMBER_LOSSES["del"](), logits, classes)
    of_cost = gradients(NUMBER_LOSSES["ntl_was"](power=0.0), logits, classes)
    cosine = torch.nn.functional.cosine_similarity(of_del, of_cost, dim=1)
    size = of_del.square().sum()
    multiple = (of_del * of_cost).sum() / of_cost.square().sum()
    common = of_del.mean(1, keepdim=True).expand_as(of_del)
    centred = of_del - common
    return {
        "positions": len(classes),
        "level": float(logits.mean()),
        "p_target": float(logits.softmax(1).gather(1, classes[:, None]).mean()),
        "cosine, mean": float(cosine.mean()),
        "cosine, 5th percentile": float(cosine.quantile(0.05)),
        "best multiple": float(multiple),
        "share left by it": float((of_del - multiple * of_cost).square().sum() / size),
        "share that moves all logits": float(common.square().sum() / size),
        "cosine without that, mean": float(
            torch.nn.functional.cosine_similarity(centred, of_cost, dim=1).mean()
        ),
    }


def answers(model: Any, tokenizer: Any, rows: list[str]) -> tuple[Tensor, Tensor]:
    """Return the digit logits and the right digits of the last number of each row, `a + b = c`.

    The first token of a row is not predicted, so a number of one digit there is not read.

    Raises:
        RuntimeError: If other numbers were read than the rows hold.
    """
    vocab = NumberVocab.from_tokenizer(tokenizer)
    readings = read_logits(model, tokenizer, vocab, rows, Objective.build("ce", "del"))
    counts = torch.tensor([2 if row[1] == " " else 3 for row in rows])
    if readings.numbers != counts.sum():
        raise RuntimeError(f"{readings.numbers} numbers were read, not {int(counts.sum())}")
    chosen = torch.isin(readings.ids, counts.cumsum(0) - 1)
    return readings.logits[chosen].double(), readings.classes[chosen]


def main() -> None:
    """Measure the pretrained model and the adapters on the command line."""
    recipe = load_recipe(HERE / "base.yaml")
    items = generate(recipe.data.nupa_tasks, recipe.data.nupa_digits, ITEMS, split="test", seed=0)
    rows = [item["prompt"] + item["answer"] for item in items]
    model_name, gguf_file = recipe.model.model_name_or_path, recipe.data.gguf_file
    found = {}
    for argument in [f"pretrained={model_name}", *sys.argv[1:]]:
        name, _, folder = argument.partition("=")
        gguf = gguf_file if name == "pretrained" else None
        model = load_adapter_or_model(folder, gguf, dtype="float32")
        found[name] = compare(*answers(model, load_tokenizer(model_name, gguf_file), rows))
        print(name, json.dumps(found[name], indent=1))
    (HERE / "del_limit.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
