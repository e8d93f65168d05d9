"""EMO, the earth mover's distance between the prediction and the label in embedding space."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from numsft.losses.base import TokenLoss, check_option


@dataclass(frozen=True)
class EMO(TokenLoss):
    """Mode 1: ½ (CE + sg[CE / (EMO + 1e-10)] · EMO); mode 2: sg[EMO / (CE + 1e-10)] · CE + EMO.

    EMO = 1 − Σ_v q̃_v c_v of https://arxiv.org/abs/2310.04691, as https://github.com/DRSY/EMO computes it:
    q is the softmax over the vocabulary, c_v = ⟨Ê_g, Ê_v⟩ the cosine of token v's cost embedding with the
    label's, and q̃ = q − sg(q_g e_g) the adaptive form, which differs from q in value alone. sg stops the
    gradient. The cost embedding E is the output embedding as it was when training began.

    dEMO/dz_j = −q_j (c_j − Σ_v q_v c_v), never of the wrong sign on the label. The gradient vanishes at q_g
    = 1; the *value* is no measure of progress: mode 1's equals CE, and mode 2's is 2 · EMO, which at q_g =
    1 is 2, not 0. Where q sits on another token of the label's direction (a duplicated embedding) EMO nears
    0 and mode 1 blows its weight up. Tokens without an embedding (zero rows) have c = 0.

    Attributes:
        mode: 1 (the authors' choice for instruction tuning) or 2.
    """

    name = "emo"
    needs_cost_embedding = True
    formula = "½ (CE + sg[CE / EMO] · EMO), EMO = 1 − Σ_{v≠g} q_v ⟨Ê_g, Ê_v⟩"
    minimum = "q_g = 1: value 0 in mode 1, 2 in mode 2"
    overhead = "one more product of hidden size × vocabulary a token, and a copy of a trained head"
    source = "EMO, [arXiv 2310.04691](https://arxiv.org/abs/2310.04691)"

    mode: int = 1

    def __post_init__(self) -> None:
        """Check the options."""
        check_option(self, "mode", type(self.mode) is int and self.mode in (1, 2), "1 or 2")

    def __call__(self, ce: Tensor, emo: Tensor | None = None) -> Tensor:
        """Return the loss of each token, `[M]`.

        Raises:
            ValueError: If `emo` is missing.
        """
        if emo is None:
            raise ValueError("emo: the loss needs emo [M], the earth mover's distance of each token")
        if self.mode == 1:
            return 0.5 * (ce + (ce / (emo + 1e-10)).detach() * emo)
        return (emo / (ce + 1e-10)).detach() * ce + emo


def inverse_lengths(weight: Tensor) -> Tensor:
    """Return 1 / ‖E_v‖ of each row of an output embedding `[V, d]`, in float32 (float64 for float64).

    A row of length 0 (a padded vocabulary has them) gets 0, so its cosine with everything is 0.
    """
    dtype = torch.promote_types(weight.dtype, torch.float32)
    length: Tensor = torch.linalg.vector_norm(weight.detach(), dim=-1, dtype=dtype)
    return torch.where(length > 0, 1 / length, 0)


def cosines(labels: Tensor, weight: Tensor, inverse: Tensor, out: Tensor | None = None) -> Tensor:
    """Return c_v = ⟨Ê_g, Ê_v⟩ for each label, `[m, V]`, in the dtype of `weight`.

    Args:
        labels: Right token of each position, `[m]`, int64.
        weight: The cost embedding E, `[V, d]`, its rows of any length.
        inverse: Its `inverse_lengths`, `[V]`.
        out: Memory to write into, `[m, V]`.
    """
    rows = (weight[labels] * inverse[labels].unsqueeze(-1)).to(weight.dtype)
    return torch.mm(rows, weight.mT, out=out).mul_(inverse.to(weight.dtype))


def earth_mover(q: Tensor, labels: Tensor, cosine: Tensor) -> tuple[Tensor, Tensor]:
    """Return the adaptive EMO = 1 − Σ_{v≠g} q_v c_v of some tokens, and Σ_v q_v c_v, `[m]` each.

    dEMO/dz_j = −q_j (c_j − Σ_v q_v c_v).

    Args:
        q: Softmax over the vocabulary, `[m, V]`.
        labels: Right token of each position, `[m]`, int64.
        cosine: From `cosines`, `[m, V]`, in the dtype of `q`.
    """
    expected = (q * cosine).sum(-1)
    right = labels.unsqueeze(-1)
    on_label = (q.gather(-1, right) * cosine.gather(-1, right)).squeeze(-1)
    return 1 - (expected - on_label), expected
