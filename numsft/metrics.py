"""Metrics as ratios of sums, so that neither micro-batch size nor the number of ranks changes them."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch import Tensor

from numsft.head import SUM_NAMES
from numsft.objective import Objective

EXTRA_NAMES = ("denominator", "batches", "steps", "input_tokens", "aux_loss")
"""What the trainer adds to the head's sums: part of S, micro-batches, steps, tokens read, router loss."""


class MetricSums:
    """Sums over a window of steps or over an evaluation, kept on the device until somebody reads them."""

    def __init__(self, device: torch.device) -> None:
        """Start at zero, on `device`."""
        # Metal has no float64; there float32 sums lose a little over very long windows.
        dtype = torch.float32 if device.type == "mps" else torch.float64
        self._sums = torch.zeros(len(SUM_NAMES) + len(EXTRA_NAMES), dtype=dtype, device=device)

    def add(self, head_sums: Tensor, **extra: Tensor | float) -> None:
        """Add a micro-batch's head sums `[len(SUM_NAMES)]` and any of `EXTRA_NAMES`."""
        self._sums[: len(SUM_NAMES)] += head_sums.to(self._sums)
        self.add_extra(**extra)

    def add_extra(self, **extra: Tensor | float) -> None:
        """Add to `EXTRA_NAMES` alone."""
        for name, value in extra.items():
            self._sums[len(SUM_NAMES) + EXTRA_NAMES.index(name)] += value

    def total(self, accelerator: Accelerator) -> dict[str, float]:
        """Return the sums over all ranks; a collective call, every rank must make it."""
        summed = accelerator.reduce(self._sums, reduction="sum")
        return dict(zip((*SUM_NAMES, *EXTRA_NAMES), summed.tolist(), strict=True))

    def reset(self, to: dict[str, float] | None = None) -> None:
        """Go back to zero, or to the totals `to`."""
        self._sums.zero_()
        if to is not None:
            self._sums += self._sums.new_tensor([to[name] for name in (*SUM_NAMES, *EXTRA_NAMES)])


def summarise(
    sums: dict[str, float], objective: Objective, *, has_numbers: bool, training: bool
) -> dict[str, float]:
    """Turn sums into the logged metrics.

    Args:
        sums: What `MetricSums.total` returned.
        objective: The losses.
        has_numbers: Whether the tokenizer has number tokens; the digit metrics are left out where it has
            none.
        training: True for a window of optimiser steps, False for an evaluation.

    Returns:
        `loss` = `token_loss` + alpha `number_loss` (+ the router loss of a mixture of experts);
        `number_loss` is without alpha. `entropy` and `digit_entropy` are in nats, the latter over the number
        tokens alone. `digit_mass` is the full softmax's mass on the number tokens, `digit_logit` the mean
        raw logit of all of them, both at number positions. `digits_per_step` is the number positions of one
        optimiser step over all ranks (of the whole evaluation, for an evaluation). A ratio whose denominator
        is zero is 0.
    """

    def per(name: str, count: str) -> float:
        return sums[name] / sums[count] if sums[count] else 0.0

    steps = max(sums["steps"], 1.0) if training else 1.0
    token_loss = per("token_loss", "tokens")
    number_loss = per("number_loss", "denominator")
    if objective.reduction == "reference" and training:
        number_loss = sums["number_loss"] / steps
    loss = token_loss + objective.weight * number_loss + per("aux_loss", "batches")
    metrics = {
        "loss": loss,
        "token_loss": token_loss,
        "mean_token_accuracy": per("correct", "tokens"),
        "entropy": per("entropy", "tokens"),
    }
    if sums["aux_loss"]:
        metrics["aux_loss"] = per("aux_loss", "batches")
    if has_numbers:
        metrics |= {
            "number_loss": number_loss,
            "digit_accuracy": per("digit_correct", "digits"),
            "digit_entropy": per("digit_entropy", "digits"),
            "digit_mass": per("digit_mass", "digits"),
            "digit_logit": per("digit_logit", "digits"),
            "digits_per_step": sums["digits"] / steps,
        }
    return metrics
