"""DEL, the Digit Entropy Loss."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from numsft.losses.base import NumberLoss, binary_cross_entropies, check_flag, check_option, is_number


@dataclass(frozen=True)
class DEL(NumberLoss):
    """R = Σ_j p̂_j [−y_j log ṗ_j − (1 − y_j) log(1 − ṗ_j)], Eq. 7 of https://arxiv.org/abs/2605.20369.

    p̂ is the softmax over the number tokens, ṗ_j = σ(z_j) the sigmoid of the raw logit, y the one-hot
    label. With `place_weighting: float`, the default here, it is the place-weighted Eq. 10 with the weights
    of Eq. 9 as the published code computes them.

    The gradient is dR/dz_j = p̂_j (B_j − R + ṗ_j − y_j), B_j being the bracket. It pushes the right digit
    *down* wherever −log ṗ_g − (1 − ṗ_g) > R: with all other logits at 0 that is z_g < −1.239. **R is not
    shift-invariant**: its size grows like level · (1 − p̂_g) with the mean digit logit, and below a level
    of about 0 its gradient mostly points the wrong way. Log the mean digit logit, or set `level`. Where
    p̂_g is tiny the gradient on z_g vanishes with it, so cross-entropy has to do that work.

    The minimum is 0, reached as p̂_g → 1 with ṗ_g → 1. R also tends to 0 in the wrong place: all other
    logits far below 0 and z_g far below them, the optimum p̂_g → 0 of the paper's Table 1.

    On multi-digit tokens the classes are all number tokens. Tokens of equal value (`7`, `▁7`) stay
    different classes, as they are for cross-entropy: only the label's own token is right.

    The published code averages over the C classes and over the digits of one micro-batch; that scaling is
    `number_reduction: reference`. Its weight of 0.1 per class mean, for CodeLlama and Mistral, is
    `default_weight` = 0.01 per class sum.

    Attributes:
        detach_weight: Stop the gradient through p̂, which leaves p̂_j (ṗ_j − y_j) on raw logits: never the
            wrong sign on the label. Off in the published code.
        level: Re-centre each position's logits to this mean before the sigmoid, the mean carrying gradient.
            It makes R shift-invariant and its weight comparable between models. None is the published raw
            logit.
    """

    name = "del"
    shift_invariant = False
    default_weight = 0.01
    weight_source = "published"
    default_place_weighting = "float"
    formula = "Σⱼ p̂ⱼ [−yⱼ log σ(zⱼ) − (1−yⱼ) log(1−σ(zⱼ))]"
    minimum = "0 as p̂_g → 1 and σ(z_g) → 1; also as p̂_g → 0 with all other σ(zⱼ) → 0"
    overhead = "number columns only"
    source = "DEL, Eq. 7 and 10, [arXiv 2605.20369](https://arxiv.org/abs/2605.20369)"

    detach_weight: bool = False
    level: float | None = None

    def __post_init__(self) -> None:
        """Check the options."""
        check_flag(self, "detach_weight")
        check_option(self, "level", self.level is None or is_number(self.level), "a finite number or null")

    @property
    def depends_on_level(self) -> bool:
        """Whether `level` is unset."""
        return self.level is None

    def terms(self, logits: Tensor, classes: Tensor, values: Tensor, log_mass: Tensor) -> Tensor:
        """Return R at each position, `[M]`."""
        weight = logits.softmax(-1)
        if self.detach_weight:
            weight = weight.detach()
        if self.level is not None:
            logits = logits - logits.mean(-1, keepdim=True) + self.level
        criterion, _ = binary_cross_entropies(logits, classes)
        return (weight * criterion).sum(-1)
