"""How sure a number is: bootstrap intervals over questions, and McNemar's exact test between two models."""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import ndarray

RESAMPLES = 10_000
_DRAWS_AT_ONCE = 1 << 22


def intervals(columns: ndarray, *, seed: int = 0, resamples: int = RESAMPLES, level: float = 0.95) -> ndarray:
    """Return the percentile bootstrap interval of each column's mean.

    Questions are resampled as whole rows, so all columns see the same draws; columns of differences between
    two models on the same questions therefore give paired intervals.

    Args:
        columns: `[n, K]` float, NaN where a question has no part in a column; a mean is over the others.
        seed: Of the draws.
        resamples: Draws of n questions. One in which a column has no entry is left out of that column.
        level: Share of the resampled means between the ends.

    Returns:
        `[K, 2]` float64, low and high end; NaN for a column without entries.
    """
    import numpy as np

    columns = np.asarray(columns, dtype=np.float64)
    n, width = columns.shape
    if n == 0:
        return np.full((width, 2), np.nan)
    present = ~np.isnan(columns)
    both = np.concatenate([np.where(present, columns, 0.0), present], axis=1)  # [n, 2K]
    rng = np.random.default_rng(seed)
    chunk = max(1, _DRAWS_AT_ONCE // n)
    means = np.empty((resamples, width))
    for start in range(0, resamples, chunk):
        rows = min(chunk, resamples - start)
        draws = rng.integers(0, n, size=(rows, n)) + np.arange(rows)[:, None] * n
        counts = np.bincount(draws.ravel(), minlength=rows * n).reshape(rows, n)
        sums = counts.astype(np.float64) @ both
        with np.errstate(invalid="ignore"):
            means[start : start + rows] = sums[:, :width] / sums[:, width:]
    tail = (1 - level) / 2
    ends = np.full((width, 2), np.nan)
    for k in range(width):
        drawn = means[:, k][~np.isnan(means[:, k])]
        if len(drawn):
            ends[k] = np.quantile(drawn, [tail, 1 - tail])
    return ends


def mcnemar(a_only: int, b_only: int) -> float:
    """Return McNemar's exact two-sided p: how often a fair coin splits the disagreements this unevenly.

    p = min(1, 2 P[Binomial(a_only + b_only, 1/2) <= min(a_only, b_only)]); 1 where the models never disagree.

    Args:
        a_only: Questions that only A answered right.
        b_only: Questions that only B answered right.
    """
    n = a_only + b_only
    tail = sum(comb(n, k) for k in range(min(a_only, b_only) + 1))
    return min(1.0, float(2 * tail / 2**n))
