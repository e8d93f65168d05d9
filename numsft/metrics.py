"""Metrics as ratios of sums, so that neither micro-batch size nor the number of ranks changes them."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch import Tensor

from numsft.head import SUM_NAMES
from numsft.microbatch import HeadBatch
from numsft.objective import Objective

NUMBER_ERROR_NAMES = (
    "log_error",
    "right_numbers",
    "numbers",
    "answer_log_error",
    "right_answers",
    "answers",
)
"""Sums over numbers: their log error, those right in every digit and their count; the same over the last
number of each document."""

EXTRA_NAMES = ("denominator", "batches", "steps", "input_tokens", "aux_loss", *NUMBER_ERROR_NAMES)
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
            self._sums += self._sums.new_tensor([to.get(name, 0.0) for name in (*SUM_NAMES, *EXTRA_NAMES)])


def number_errors(batch: HeadBatch, predicted: Tensor) -> dict[str, Tensor]:
    """Return the sums `NUMBER_ERROR_NAMES` of a micro-batch: how far off its numbers are, teacher-forced.

    Each digit is the likeliest one after the right digits before it, so a number is right in every digit
    where greedy decoding would write it, but for the tokens that end it. The error of a number is
    |log10(1 + X) - log10(1 + Y)| of the predicted X and the right Y, both at most 1e10: NTL's log-MAE
    (arXiv 2411.02083) without the sign, which no digit says.

    Args:
        batch: The number positions.
        predicted: `[M]` int64, the class chosen at each.
    """
    if not len(predicted):
        return dict.fromkeys(NUMBER_ERROR_NAMES, batch.number_count.new_zeros(()))
    # Metal has no float64; float32 keeps seven digits, enough for a logarithm.
    dtype = torch.float32 if predicted.device.type == "mps" else torch.float64
    number, first = batch.numbers - batch.numbers.min(), batch.documents
    count = int(number.max()) + 1
    scale = torch.pow(10.0, batch.places.to(dtype))
    logs = []
    for classes in (predicted, batch.classes):
        value = scale.new_zeros(count).index_add(0, number, batch.values.to(dtype)[classes] * scale)
        logs.append(torch.log10(1 + value.clamp(max=1e10)))
    present = torch.zeros(count, dtype=torch.bool, device=number.device).index_fill(0, number, True)
    document = first.new_zeros(count).index_copy(0, number, first)[present]
    errors = (logs[0] - logs[1]).abs()[present]
    right = (number.new_zeros(count).index_add(0, number, (predicted != batch.classes).long()) == 0)[present]
    last = torch.ones_like(document, dtype=torch.bool)
    last[:-1] = document[1:] != document[:-1]
    return {
        "log_error": errors.sum(),
        "right_numbers": right.sum(),
        "numbers": present.sum(),
        "answer_log_error": errors[last].sum(),
        "right_answers": right[last].sum(),
        "answers": last.sum(),
    }


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
        optimiser step over all ranks (of the whole evaluation, for an evaluation). An evaluation also has
        `log_mae` and `answer_log_mae`, the mean of `number_errors` over all numbers and over each document's
        last, and `number_accuracy` and `answer_accuracy`, the share of them right in every digit. A ratio
        whose denominator is zero is 0.
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
    if has_numbers and not training:
        metrics["log_mae"] = per("log_error", "numbers")
        metrics["answer_log_mae"] = per("answer_log_error", "answers")
        metrics["number_accuracy"] = per("right_numbers", "numbers")
        metrics["answer_accuracy"] = per("right_answers", "answers")
    return metrics
