"""The continuous ranked probability score of the digit distribution."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from numsft.losses.base import NumberLoss


@dataclass(frozen=True)
class CRPS(NumberLoss):
    """∫ (F_p̂(x) − 1[x ≥ v_g])² dx = Σ_i (F_i − 1[v_i ≥ v_g])² (v_{i+1} − v_i), the values ascending.

    F_i = Σ_{v_j ≤ v_i} p̂_j. On the ten digits it is Σ_i (F_i − 1[i ≥ g])². The score is the classical one
    of Matheson and Winkler (1976), in the notation of Gneiting and Raftery, Eq. 20,
    https://doi.org/10.1198/016214506000001437. It is strictly proper in the values, where NTL-WAS is not:
    averaged over uncertain labels it is least at their true distribution rather than at a one-hot of their
    median.

    The minimum is 0 at p̂_g = 1. Shift-invariant; the gradient on z_g is −2 p̂_g CRPS, never of the wrong
    sign, but quadratic in the error, so it vanishes as p̂ nears a wrong one-hot.

    On multi-digit tokens the gaps are those between the values; tokens of equal value are one point of the
    CDF.
    """

    name = "crps"
    shift_invariant = True
    default_weight = 0.3
    weight_source = "ours"
    default_place_weighting = "none"
    formula = "Σᵢ (F_p̂(vᵢ) − 1[vᵢ ≥ v_g])² (vᵢ₊₁ − vᵢ)"
    minimum = "0 at p̂_g = 1"
    overhead = "number columns only"
    source = "Gneiting and Raftery 2007, Eq. 20, [doi](https://doi.org/10.1198/016214506000001437)"

    def terms(self, logits: Tensor, classes: Tensor, values: Tensor, log_mass: Tensor) -> Tensor:
        """Return the score of each position, `[M]`."""
        ascending, order = values.sort()
        below = logits.softmax(-1)[:, order].cumsum(-1)[:, :-1]
        reached = ascending[:-1] >= values[classes].unsqueeze(-1)
        return ((below - reached.to(below.dtype)).square() * ascending.diff()).sum(-1)
