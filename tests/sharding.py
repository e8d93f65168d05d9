"""A few optimiser steps of a tiny model, on one process or sharded over two: what the sharding tests compare.

Every way to run them takes the same data: two ranks' micro-batches, a rank (or all of a micro-batch) without
digits in each step, and one micro-batch without a label.
"""

from __future__ import annotations

from collections import Counter

import torch
from peft import LoraConfig, get_peft_model
from tiny import tiny_llama, tiny_tokenizer
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from numsft import NumberVocab, number_loss
from numsft.head import SUM_NAMES
from numsft.microbatch import StepCounts, count_step, head_batch
from numsft.objective import Objective
from numsft.trl_bridge import HeadCall, attach_head, base_model_of

RANKS = 2
LEARNING_RATE = 0.5
VOCAB = NumberVocab.from_tokenizer(tiny_tokenizer())
OBJECTIVE = Objective.build("ce", "del", number_loss_weight=0.3)
STEPS = [  # step -> rank -> micro-batch -> rows; a row in brackets has no label
    [[["12.5+7=19.5", "300-1"], ["words then 4"]], [["no digits", "here"], ["none"]]],
    [[["some words", "more"], ["and others"]], [["3.25 is it", "8"], ["19 ducks"]]],
    [[["77"], ["(12)"]], [["(nothing)", "(no label)"], ["1,024 rows", "no"]]],
    [[["2+2=4", "5"], ["a 6"]], [["b 7"], ["words"]]],
]


def micro_batches(step: int, rank: int) -> list[dict[str, Tensor]]:
    """Collated micro-batches of one rank, padded on the right."""
    collated = []
    for rows in STEPS[step][rank]:
        batch = tiny_tokenizer()(rows, padding=True, return_tensors="pt")
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        labels[[row.startswith("(") for row in rows]] = -100
        collated.append(
            {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "labels": labels}
        )
    return collated


def build(head: str) -> nn.Module:
    """A tiny Llama: `trained` (untied), `tied`, `frozen` (LoRA) or `saved` (trained beside LoRA)."""
    model = tiny_llama(104, tied=head == "tied")
    if head in ("frozen", "saved"):
        model = get_peft_model(
            model,
            LoraConfig(
                r=4,
                target_modules=["q_proj", "v_proj", "up_proj"],
                modules_to_save=["lm_head"] if head == "saved" else None,
                init_lora_weights=False,
                task_type="CAUSAL_LM",
            ),
        )
    return model


def chunked_loss(model: nn.Module, batch: dict[str, Tensor], counts: StepCounts) -> tuple[Tensor, Tensor]:
    """The loss as the trainer computes it, and the head's sums."""
    call = HeadCall(head_batch(batch, VOCAB, OBJECTIVE, counts), OBJECTIVE, chunk_size=5)
    outputs = model(
        input_ids=batch["input_ids"],
        attention_mask=batch["attention_mask"],
        use_cache=False,
        head_call=call,
    )
    assert call.sums is not None
    return outputs["loss"], call.sums


def plain_loss(model: nn.Module, batch: dict[str, Tensor], counts: StepCounts) -> tuple[Tensor, Tensor]:
    """The same loss on the model's own full logits, by plain autograd."""
    logits = model(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False
    ).logits.float()
    labels = batch["labels"]
    ce = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")
    numbers = number_loss(logits, labels, VOCAB, "del") * count_step([batch], VOCAB, OBJECTIVE)[1].float()
    assert counts.numbers is not None
    total = ce / counts.tokens + OBJECTIVE.weight * numbers / counts.numbers
    return counts.averaged_over * total.float(), torch.zeros(len(SUM_NAMES))


LOSSES = {"numsft": chunked_loss, "plain": plain_loss}


class OneProcess:
    """Plain SGD in one process, over the micro-batches of all ranks."""

    averaged_over = 1

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=LEARNING_RATE)

    def batches(self, step: int) -> list[dict[str, Tensor]]:
        return [batch for rank in range(RANKS) for batch in micro_batches(step, rank)]

    def backward(self, loss: Tensor, last: bool) -> None:
        loss.backward()

    def gradients(self) -> dict[str, Tensor]:
        return {n: p.grad.clone() for n, p in self.model.named_parameters() if p.grad is not None}

    def step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def weights(self) -> dict[str, Tensor]:
        return {n: p.detach().clone() for n, p in self.model.named_parameters() if p.requires_grad}

    def total(self, value: Tensor) -> Tensor:
        return value


def step_counts(step: int, averaged_over: int) -> StepCounts:
    """N and S over all ranks, as the trainer's all-reduce gives them."""
    batches = [batch for rank in range(RANKS) for batch in micro_batches(step, rank)]
    tokens, numbers = count_step(batches, VOCAB, OBJECTIVE)
    return StepCounts(tokens, numbers, averaged_over)


def train(runner, loss: str) -> dict:
    """Take the steps; return losses, sums, gradients, collective calls a step, and the trained weights."""
    if loss == "numsft":
        attach_head(base_model_of(getattr(runner, "bare", runner.model)))
    seen: dict = {"losses": [], "sums": [], "gradients": [], "collectives": []}
    for step in range(len(STEPS)):
        counts = step_counts(step, runner.averaged_over)
        total, sums = torch.zeros(()), torch.zeros(len(SUM_NAMES), dtype=torch.float64)
        batches = runner.batches(step)
        with (counter := CollectiveCounter()):
            for index, batch in enumerate(batches):
                value, part = LOSSES[loss](runner.model, batch, counts)
                runner.backward(value, last=index == len(batches) - 1)
                total += value.detach().float() / runner.averaged_over
                sums += part
        gradients = runner.gradients()
        with counter:
            runner.step()
        seen["losses"].append(runner.total(total).item())
        seen["sums"].append(runner.total(sums))
        seen["gradients"].append(gradients)
        seen["collectives"].append(dict(counter.calls))
    seen["weights"] = runner.weights()
    return seen


class CollectiveCounter(TorchDispatchMode):
    """Counts the collective calls made inside, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace in ("c10d", "_c10d_functional"):
            self.calls[str(func)] += 1
        return func(*args, **(kwargs or {}))


def train_in_one_process(head: str, loss: str) -> dict:
    """The reference: no sharding at all."""
    return train(OneProcess(build(head)), loss)
