"""Cross-entropy."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from numsft.losses.base import TokenLoss


@dataclass(frozen=True)
class CE(TokenLoss):
    """−log q_g, q the softmax over the vocabulary: maximum likelihood, Eq. 1 of https://arxiv.org/abs/2605.20369.

    The minimum is 0 at q_g = 1; its gradient q − y never has the wrong sign.
    """

    name = "ce"
    formula = "−log q_g"
    minimum = "0 at q_g = 1"
    overhead = "none"
    source = "DEL, Eq. 1, [arXiv 2605.20369](https://arxiv.org/abs/2605.20369)"

    def __call__(self, ce: Tensor, emo: Tensor | None = None) -> Tensor:
        """Return `ce` as it is, `[M]`."""
        return ce
