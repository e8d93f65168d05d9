"""DEL on logit margins: what DEL does far above 0, without the level."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import logsigmoid

from numsft.losses.base import NumberLoss


@dataclass(frozen=True)
class DELMargin(NumberLoss):
    """R = Σ_{j≠g} p̂_j [−log σ(z_g − z_j)]: DEL's criterion on the margins to the right digit; our own form.

    DEL (Eq. 7 of https://arxiv.org/abs/2605.20369) asks of each wrong digit −log(1 − σ(z_j)), of its raw
    logit. Far above 0 that is z_j, so the loss is about level · (1 − p̂_g), and its cheapest descent is to
    pull all digit logits down together, which teaches nothing. Here the bracket reads how far the wrong digit
    stands above the right one, log(1 + p̂_j / p̂_g): the same weighting by p̂, without a level.

    The gradient is dR/dz_j = p̂_j [B_j − R + σ(z_j − z_g)] for a wrong digit, B_j being its bracket, and
    dR/dz_g = −p̂_g R − Σ_{j≠g} p̂_j σ(z_j − z_g): never of the wrong sign, and about −1 where the model is
    sure of a wrong digit, where DEL's vanishes. The minimum is 0, as p̂_g → 1. Shift-invariant.

    On multi-digit tokens the classes are all number tokens; a token of the label's value is still a wrong
    one.
    """

    name = "del_margin"
    shift_invariant = True
    default_weight = 0.3
    weight_source = "ours"
    default_place_weighting = "float"
    formula = "Σ_{j≠g} p̂ⱼ [−log σ(z_g − zⱼ)]"
    minimum = "0 as p̂_g → 1"
    overhead = "number columns only"
    source = "ours, after DEL, Eq. 7, [arXiv 2605.20369](https://arxiv.org/abs/2605.20369)"

    def terms(self, logits: Tensor, classes: Tensor, values: Tensor, log_mass: Tensor) -> Tensor:
        """Return R at each position, `[M]`."""
        right = classes.unsqueeze(-1)
        bracket = -logsigmoid(logits.gather(-1, right) - logits)
        return (logits.softmax(-1).scatter(-1, right, 0.0) * bracket).sum(-1)
