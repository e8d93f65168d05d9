"""Counts tokens, numbers and stop tokens document by document, straight from Arrow, a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

IGNORED = -100
NumberTokens = Sequence[int] | Callable[[np.ndarray], np.ndarray]


class Totals:
    """Sums over documents, a batch at a time."""

    def __init__(
        self,
        stop: int | None,
        max_length: int | None,
        number_tokens: NumberTokens | None,
    ) -> None:
        """`stop` is the end-of-sequence token's id."""
        self.stop = -1 if stop is None else stop
        self.max_length = max_length
        self.is_number: Callable[[np.ndarray], np.ndarray] | None = None
        if callable(number_tokens):
            self.is_number = number_tokens
        elif number_tokens is not None:
            members = np.unique(np.asarray(number_tokens, dtype=np.int64))
            self.is_number = lambda labels: np.isin(labels, members)
        self.documents = self.masked = self.masked_long = self.tokens = self.trainable = 0
        self.longest = self.truncated = self.stop_missing = self.stop_repeated = 0
        self.numbers = None if self.is_number is None else 0

    def add(self, ids: np.ndarray, labels: np.ndarray, lengths: np.ndarray) -> None:
        """Takes documents in: `ids`, `labels` `[tokens]` end to end, `lengths` `[documents]`, none 0."""
        starts = np.cumsum(lengths) - lengths
        labels = labels.copy()
        labels[starts] = IGNORED
        trained = labels != IGNORED
        per_document = np.add.reduceat(trained, starts, dtype=np.int64)
        stops = np.add.reduceat(labels == self.stop, starts, dtype=np.int64)
        long = np.zeros(len(lengths), bool) if self.max_length is None else lengths >= self.max_length
        cut = long & (ids[starts + lengths - 1] != self.stop)
        masked = per_document == 0
        self.documents += len(lengths)
        self.tokens += int(lengths.sum())
        self.trainable += int(per_document.sum())
        self.longest = max(self.longest, int(lengths.max()))
        self.masked += int(masked.sum())
        self.masked_long += int((masked & long).sum())
        self.truncated += int(cut.sum())
        self.stop_missing += int(((stops == 0) & ~cut & ~masked).sum())
        self.stop_repeated += int(((stops > 1) & ~cut).sum())
        if self.is_number is not None:
            self.numbers = (self.numbers or 0) + int(self.is_number(labels[trained]).sum())


def batches(prepared: Dataset) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Ids and labels of many rows end to end, with the lengths of the documents in them."""
    columns = [c for c in ("input_ids", "labels", "seq_lengths") if c in prepared.column_names]
    for table in prepared.select_columns(columns).with_format("arrow").iter(batch_size=10_000):
        ids, labels = (_flat(table[column]) for column in ("input_ids", "labels"))
        if "seq_lengths" in columns:
            lengths = _flat(table["seq_lengths"])
        else:
            lengths = pc.list_value_length(table["input_ids"]).to_numpy()
        lengths = lengths[lengths > 0].astype(np.int64)
        if len(lengths):
            yield ids, labels, lengths


def _flat(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(pc.list_flatten(column))
