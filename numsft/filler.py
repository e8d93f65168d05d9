"""Rows that only fill up the last batch of a distributed evaluation, and how to leave them out.

Every rank must take as many batches as the others, so the last ones are filled with rows from the start of
the data. Without padding all rows of a batch stand in one line, so what is a row has to be kept beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from numsft.numerals import IGNORED

ROW_LENGTHS = "row_lengths"
"""Key of a batch: tokens of each of its rows, `[rows]` int64."""


@dataclass(frozen=True)
class WithRowLengths:
    """A collator that adds `ROW_LENGTHS` to what `collator` returns; worker processes can pickle it."""

    collator: Callable[..., Any]

    def __call__(self, rows: Sequence[dict[str, Any]]) -> Any:
        """Collate `rows`."""
        # A collator may change its rows.
        lengths = [len(row["input_ids"]) for row in rows if "input_ids" in row]
        batch = self.collator(rows)
        if len(lengths) == len(rows):
            batch[ROW_LENGTHS] = torch.tensor(lengths)
        return batch


def without_last_rows(labels: Tensor, lengths: Tensor, own: int) -> Tensor:
    """Return a copy of `labels` with every row after the first `own` ignored.

    Args:
        labels: `[rows, seq]`, or `[1, seq]` where the rows stand one after the other.
        lengths: `[rows]`, tokens of each row.
        own: Rows to keep.
    """
    labels = labels.clone()
    if len(labels) == len(lengths):
        labels[own:] = IGNORED
    else:
        labels[:, int(lengths[:own].sum()) :] = IGNORED
    return labels
