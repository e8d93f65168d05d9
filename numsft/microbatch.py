"""From a micro-batch's labels to what the head reads: trained positions, number targets, scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from numsft.numerals import (
    IGNORED,
    NumberTargets,
    NumberVocab,
    document_starts,
    ignore_document_starts,
    number_targets,
)
from numsft.objective import Objective


@dataclass(frozen=True, eq=False)
class HeadBatch:
    """The trained positions of a micro-batch; N of them, M of which are number positions.

    Attributes:
        length: Columns of the labels; a longer row of hidden states starts with virtual tokens.
        rows: `[N]` int64, index of each position's hidden state in the flattened `[batch * seq]` states.
        labels: `[N]` int64, the label that each predicts.
        number_rows: `[M]` int64, indices into the N positions, ascending.
        classes: `[M]` int64, index of the right number token among the classes.
        weights: `[M]` float, place weights.
        places: `[M]` int64, decimal places.
        numbers: `[M]` int64, contiguous id of each digit's number.
        token_scale: scalar tensor, what the summed token loss is multiplied by.
        number_scale: scalar tensor, what the weighted sum of the number loss is multiplied by, alpha
            included.
        number_count: scalar tensor, this micro-batch's own denominator of the number loss.
        token_ids: `[C]` int64, the number tokens.
        values: `[C]` float32, their values.
        documents: `[M]` int64, which row, or packed document, of the micro-batch each digit stands in.
        row_keys: `[M]` int64, a hash of the row (the packed document) that each number stands in; a loss that
            draws noise seeds it with this, so that the noise does not depend on how a step is cut up.
        seed: What that noise starts from beside the row.
    """

    length: int
    rows: Tensor
    labels: Tensor
    number_rows: Tensor
    classes: Tensor
    weights: Tensor
    places: Tensor
    numbers: Tensor
    token_scale: Tensor
    number_scale: Tensor
    number_count: Tensor
    token_ids: Tensor
    values: Tensor
    documents: Tensor
    row_keys: Tensor
    seed: int = 0


@dataclass(frozen=True, eq=False)
class StepCounts:
    """The denominators of one optimiser step, over all its micro-batches and ranks.

    Attributes:
        tokens: N, scalar float tensor.
        numbers: S, scalar float tensor; None for the `"reference"` reduction, which divides each micro-batch
            by its own.
        averaged_over: Ranks over which the framework averages the gradients; the loss is multiplied by it.
    """

    tokens: Tensor
    numbers: Tensor | None
    averaged_over: int = 1


def read_labels(inputs: dict[str, Any], vocab: NumberVocab) -> tuple[Tensor, NumberTargets]:
    """Return `[batch, seq]` labels with document starts ignored, and the number targets in them.

    Args:
        inputs: A collated micro-batch with `labels` and, where documents are packed, `position_ids`.
        vocab: The tokenizer's number tokens.

    Raises:
        ValueError: If there are no labels.
    """
    if inputs.get("labels") is None:
        raise ValueError(
            f"The batch has no labels, only {sorted(inputs)}: give the trainer a dataset that TRL "
            "can prepare or one "
            "with a `labels` column."
        )
    position_ids = inputs.get("position_ids")
    labels = ignore_document_starts(inputs["labels"], position_ids)
    return labels, number_targets(labels, vocab, position_ids)


def count_step(batches: Sequence[dict[str, Any]], vocab: NumberVocab, objective: Objective) -> Tensor:
    """Return `[N, S]` of this rank's micro-batches, float64."""
    counts = torch.zeros(2, dtype=torch.float64)
    for batch in batches:
        labels, targets = read_labels(batch, vocab)
        tokens = (labels[:, 1:] != IGNORED).sum()
        counts = counts.to(labels.device) + torch.stack(
            [tokens.double(), objective.denominator(targets, tokens)]
        )
    return counts


def head_batch(
    inputs: dict[str, Any],
    vocab: NumberVocab,
    objective: Objective,
    counts: StepCounts | None = None,
    seed: int = 0,
) -> HeadBatch:
    """Describe a collated micro-batch to the head.

    Args:
        inputs: `labels [batch, seq]` unshifted, and `position_ids` where documents are packed.
        vocab: The tokenizer's number tokens, on the labels' device.
        objective: The losses.
        counts: The step's denominators; None counts this micro-batch alone.
        seed: What the noise of a stochastic loss starts from.
    """
    labels, targets = read_labels(inputs, vocab)
    starts = document_starts(labels, inputs.get("position_ids"))
    length = labels.shape[1]
    trained = (labels[:, 1:] != IGNORED).flatten().nonzero()[:, 0]
    label_at = (
        trained + trained // max(length - 1, 1) + 1
    )  # index of the label in the unshifted, flattened rows
    numeric = targets.mask.flatten()[label_at]
    number_rows = numeric.nonzero()[:, 0]
    number_at = label_at[number_rows]

    tokens = labels.new_tensor(len(trained), dtype=torch.float32)
    averaged_over = 1 if counts is None else counts.averaged_over
    own = objective.denominator(targets, tokens)
    if objective.reduction == "reference":
        own = own * len(vocab.token_ids)
    numbers = own if counts is None or counts.numbers is None else counts.numbers
    if counts is not None:
        tokens = counts.tokens
    return HeadBatch(
        length=length,
        rows=label_at - 1,
        labels=labels.flatten()[label_at],
        number_rows=number_rows,
        classes=targets.classes.flatten()[number_at],
        weights=objective.place_weights(targets).flatten()[number_at],
        places=targets.places.flatten()[number_at],
        numbers=targets.numbers.flatten()[number_at],
        token_scale=averaged_over / _or_one(tokens),
        number_scale=objective.weight * averaged_over / _or_one(numbers),
        number_count=own,
        token_ids=vocab.token_ids,
        values=vocab.values,
        documents=starts.flatten().cumsum(0)[number_at],
        row_keys=_row_keys(labels, starts).flatten()[number_at],
        seed=seed,
    )


def _row_keys(labels: Tensor, starts: Tensor) -> Tensor:
    """Return `[batch, seq]`: for each label a hash of the trained labels of its row, or packed document."""
    document = starts.flatten().cumsum(0) - 1
    index = torch.arange(document.numel(), device=labels.device)
    position = index - (index * starts.flatten()).cummax(0).values
    # Sums of odd multiples wrap around in 64 bits, the same on every device.
    terms = (labels.flatten() + 1) * ((position + 1) * 0x9E3779B97F4A7C1 + 1)
    terms = terms.masked_fill(labels.flatten() == IGNORED, 0)
    sums = torch.zeros_like(document).index_add(0, document, terms)
    return sums[document].view_as(labels)


def _or_one(count: Tensor) -> Tensor:
    """The count as float32, 1 where nothing was counted: the sum above it is then zero too."""
    return torch.where(count > 0, count, 1).float()
