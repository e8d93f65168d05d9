"""Ends a run whose loss, gradient or weights are no longer finite, before that can reach a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

from numsft.errors import RunError
from numsft.faults import find_rows, last_good, rows_text
from numsft.head import SUM_NAMES

if TYPE_CHECKING:
    from numsft.trainer import NumSFTTrainer


class NonFinite:
    """What was not finite in the current optimiser step on this rank."""

    def __init__(self) -> None:
        """Start before the first step."""
        self.start([])

    def start(self, batches: list[dict[str, Any]]) -> None:
        """Begin a step made of these micro-batches."""
        self._batches = batches
        self._terms: list[str] = []
        self._broken: list[dict[str, Any]] = []

    def remember(self, terms: list[str], inputs: dict[str, Any]) -> None:
        """Note a micro-batch whose loss is not finite, and the terms of it that are not."""
        self._terms += terms
        self._broken.append(inputs)

    def refuse(self, trainer: NumSFTTrainer, norm: Any) -> None:
        """End the run where this step's losses or its gradient's norm are not finite.

        Args:
            trainer: The trainer.
            norm: The norm, the same on every rank; None leaves it unchecked.

        Raises:
            RunError: One sentence with the step and, by number, the rows of the prepared training data.
        """
        agreed = norm is not None and not math.isfinite(_number(norm))
        if not agreed and not self._broken:
            return
        told = [(self._terms, self._rows(trainer, self._broken))]
        if agreed:
            told = gather_object(told)
        terms = sorted({term for names, _ in told for term in names}, reverse=True)
        rows = sorted({row for _, numbers in told for row in numbers})
        if not terms:  # every loss is finite: the rows are those of the whole step
            every = gather_object([self._rows(trainer, self._batches)])
            rows = sorted({row for numbers in every for row in numbers})
        raise RunError(
            f"The {' and the '.join(terms) or 'gradient'} of optimiser step {trainer.state.global_step + 1} "
            f"is not finite, in {rows_text(rows)} of the prepared training data: look at those rows, or "
            f"lower learning_rate or number_loss_weight; {last_good(str(trainer.args.output_dir))}."
        )

    def of_weights(self, trainer: NumSFTTrainer) -> str:
        """Return the message for weights that are not finite after a step."""
        return (
            f"The weights are not finite after optimiser step {trainer.state.global_step}, which is not "
            f"saved: lower learning_rate; {last_good(str(trainer.args.output_dir))}."
        )

    def _rows(self, trainer: NumSFTTrainer, batches: list[dict[str, Any]]) -> list[int]:
        return [row for inputs in batches for row in find_rows(trainer.train_dataset, inputs)]


def loss_terms(sums: Tensor) -> list[str]:
    """Return which terms of a micro-batch's loss are not finite, by the head's `sums [len(SUM_NAMES)]`."""
    values = dict(zip(SUM_NAMES, sums.tolist(), strict=True))
    broken = [name for name in ("token_loss", "number_loss") if not math.isfinite(values[name])]
    return [name.replace("_", " ") for name in broken] or ["loss"]


def weights_not_finite(model: torch.nn.Module) -> dict[str, Tensor]:
    """Return, for the part of every trained weight that this rank holds, whether it is not finite."""
    found = {}
    for name, weight in model.named_parameters():
        local = weight.detach()
        local = local.to_local() if hasattr(local, "to_local") else local
        if weight.requires_grad and local.numel():
            low, high = torch.aminmax(local)  # both are NaN where a weight is; no copy is made
            found[name] = ~(torch.isfinite(low) & torch.isfinite(high))
    return found


def weights_are_finite(model: torch.nn.Module, accelerator: Accelerator, known: Collection[str] = ()) -> bool:
    """Whether every trained weight of every rank is finite; a collective call.

    Args:
        model: The model.
        accelerator: Sums over the ranks.
        known: Names of weights that were not finite before training, such as unused rows of an embedding.
    """
    bad = torch.zeros((), device=accelerator.device)
    for name, broken in weights_not_finite(model).items():
        if name not in known:
            bad += broken.to(bad)
    return float(accelerator.reduce(bad, reduction="sum")) == 0


def _number(norm: Any) -> float:
    return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
