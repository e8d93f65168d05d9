"""DEL's criterion under NTL's distance."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from numsft.losses.base import NumberLoss, binary_cross_entropies, distances


@dataclass(frozen=True)
class DELDistance(NumberLoss):
    """R = Σ_j p̂_j B_j |v_j − v_g|: DEL times NTL's distance, row 5 of Table 4 of https://arxiv.org/abs/2605.20369.

    p̂ is the softmax over the number tokens, B_j = −y_j log σ(z_j) − (1 − y_j) log(1 − σ(z_j)) DEL's
    criterion (Eq. 7). The paper names the combination without a formula of its own; this product is our
    reading of it.

    The minimum is 0, as p̂_g → 1, or as every other σ(z_j) → 0. The label's own B_g has distance 0, so the
    gradient on z_g is −p̂_g R, never of the wrong sign. It is **not shift-invariant**: like DEL it grows
    with the mean digit logit and fades as all logits fall below 0, whatever p̂ is. Where p̂_g is tiny the
    gradient on z_g vanishes.

    On multi-digit tokens the distances are those of the values; tokens of the label's value cost nothing.
    """

    name = "del_distance"
    shift_invariant = False
    default_weight = 0.01
    weight_source = "ours"
    default_place_weighting = "float"
    formula = "Σⱼ p̂ⱼ Bⱼ ∣vⱼ − v_g∣, Bⱼ = −yⱼ log σ(zⱼ) − (1−yⱼ) log(1−σ(zⱼ))"
    minimum = "0 as p̂_g → 1, or as all other σ(zⱼ) → 0"
    overhead = "number columns only"
    source = "DEL, Table 4 row 5, [arXiv 2605.20369](https://arxiv.org/abs/2605.20369)"

    def terms(self, logits: Tensor, classes: Tensor, values: Tensor, log_mass: Tensor) -> Tensor:
        """Return R at each position, `[M]`."""
        criterion, _ = binary_cross_entropies(logits, classes)
        return (logits.softmax(-1) * criterion * distances(classes, values)).sum(-1)
