"""MixCE, forward and reverse cross-entropy mixed."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from numsft.losses.base import TokenLoss, check_option, is_number


@dataclass(frozen=True)
class MixCE(TokenLoss):
    """[η + (1 − η) sg(q_g)] · (−log q_g), q the softmax over the vocabulary: https://arxiv.org/abs/2305.16958.

    The formula is that of EMO's re-implementation (https://github.com/DRSY/EMO), sg stopping the gradient.
    Its gradient is cross-entropy's times η + (1 − η) q_g: never of the wrong sign, weak on tokens that the
    model finds unlikely, and for η = 0 (`dft`) vanishing there. The minimum is 0 at q_g = 1;
    below η ≈ 0.12 the value is not monotone in q_g, so no measure of progress. The original tunes η per
    data set; 0.5 is the DEL repository's.

    The snippet left commented out in the DEL repository (https://arxiv.org/abs/2605.20369) takes for q_g
    one number for the whole batch, exp(−mean CE), and sums over tokens. The paper's MixCE results cannot be
    reproduced from it, and one number for the batch would depend on the micro-batch; it is not offered.

    Attributes:
        eta: η in [0, 1]; 1 is cross-entropy.
    """

    name = "mixce"
    formula = "[η + (1−η) sg(q_g)] · (−log q_g)"
    minimum = "0 at q_g = 1"
    overhead = "none"
    source = "MixCE, [arXiv 2305.16958](https://arxiv.org/abs/2305.16958)"

    eta: float = 0.5

    def __post_init__(self) -> None:
        """Check the options."""
        check_option(self, "eta", is_number(self.eta) and 0 <= self.eta <= 1, "a number from 0 to 1")

    def __call__(self, ce: Tensor, emo: Tensor | None = None) -> Tensor:
        """Return the loss of each token, `[M]`."""
        return (self.eta + (1 - self.eta) * ce.detach().neg().exp()) * ce
