"""Gaussian label smoothing over the number tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from numsft.losses.base import NumberLoss, check_option, distances, is_number


@dataclass(frozen=True)
class GaussianSmoothing(NumberLoss):
    """−Σ_j q_j log p_j, q_j ∝ exp(−(v_j − v_g)² / (2σ²)) over the number tokens, p the full softmax.

    The Gaussian label smoothing of NTL's research code (https://arxiv.org/abs/2411.02083). It is `dist2`
    with `full_vocab` and τ = 2σ², plus the entropy of q, which has no gradient.

    The minimum is the entropy of q, at p = q, so **confidence is capped** as in `dist2`: the gradient on
    the number tokens pushes the right digit *down* wherever p_g > q_g (0.40 in the middle of the ten digits
    at σ = 1). Shift-invariant.

    On multi-digit tokens the distances are those of the values; tokens of equal value get the same target.

    Attributes:
        sigma: σ ≥ 0, in units of value; 0 puts the whole target on the label's value.
    """

    name = "gaussian_smoothing"
    shift_invariant = True
    default_weight = 0.3
    weight_source = "ours"
    default_place_weighting = "none"
    formula = "−Σⱼ qⱼ log pⱼ, qⱼ ∝ exp(−(vⱼ − v_g)² / 2σ²), p over the whole vocabulary"
    minimum = "the entropy of q at p = q, so p_g ≤ 0.40 to 0.57 at σ = 1"
    overhead = "number columns and the mass on them"
    source = "NTL's research code, [arXiv 2411.02083](https://arxiv.org/abs/2411.02083)"

    sigma: float = 1.0

    def __post_init__(self) -> None:
        """Check the options."""
        check_option(self, "sigma", is_number(self.sigma) and self.sigma >= 0, "a number ≥ 0")

    @property
    def needs_log_mass(self) -> bool:
        """Always: the log-probabilities are those of the full softmax."""
        return True

    def terms(self, logits: Tensor, classes: Tensor, values: Tensor, log_mass: Tensor) -> Tensor:
        """Return the smoothed cross-entropy at each position, `[M]`."""
        distance = distances(classes, values)
        if self.sigma == 0:
            target = distance.masked_fill(distance > 0, -torch.inf).softmax(-1)
        else:
            target = (-(distance / self.sigma).square() / 2).softmax(-1)
        return -(target * logits.log_softmax(-1)).sum(-1) - log_mass
