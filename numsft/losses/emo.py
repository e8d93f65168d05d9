"""EMO, the earth mover's distance between the prediction and the label in embedding space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from numsft.losses.base import TokenLoss, check_option


@dataclass(frozen=True)
class EMO(TokenLoss):
    """Mode 1: ½ (CE + sg[CE / (EMO + 1e-10)] · EMO); mode 2: sg[EMO / (CE + 1e-10)] · CE + EMO.

    EMO = 1 − Σ_v q̃_v c_v of https://arxiv.org/abs/2310.04691, as https://github.com/DRSY/EMO computes it:
    q is the softmax over the vocabulary, c_v = ⟨Ê_g, Ê_v⟩ the cosine of token v's cost embedding with the
    label's, and q̃ = q − sg(q_g e_g) the adaptive form, which differs from q in value alone. sg stops the
    gradient. The cost embedding is fixed: a frozen copy of the output embedding, or that embedding without
    gradient.

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
    overhead = "one more product of hidden size × vocabulary a token"
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


class EarthMover(NamedTuple):
    """What `earth_mover` finds; dEMO/dz_j = −q_j (cosine_j − expected_cosine)."""

    emo: Tensor
    """EMO of each token, `[m]`."""
    cosine: Tensor
    """c_v = ⟨Ê_g, Ê_v⟩, `[m, V]`."""
    expected_cosine: Tensor
    """Σ_v q_v c_v, `[m]`."""


def cost_embedding(weight: Tensor) -> Tensor:
    """Return Ê, the rows of an output embedding `[V, d]` scaled to length 1 and cut from the graph.

    A row of length 0 (a padded vocabulary has them) stays 0, so its cosine with everything is 0.
    """
    weight = weight.detach()
    dtype = torch.promote_types(weight.dtype, torch.float32)
    length: Tensor = torch.linalg.vector_norm(weight, dim=-1, keepdim=True, dtype=dtype)
    return (weight / length.masked_fill(length == 0, 1)).to(weight.dtype)


@torch.no_grad()
def earth_mover(q: Tensor, labels: Tensor, embedding: Tensor) -> EarthMover:
    """Return the adaptive EMO = 1 − Σ_{v≠g} q_v c_v of one chunk of tokens, with what its gradient needs.

    Args:
        q: Softmax over the vocabulary, `[m, V]`, float32 or float64.
        labels: Right token of each position, `[m]`, int64.
        embedding: Ê from `cost_embedding`, `[V, d]`.
    """
    cosine = (embedding[labels] @ embedding.mT).to(q.dtype)
    expected_cosine = (q * cosine).sum(-1)
    right = labels.unsqueeze(-1)
    on_label = (q.gather(-1, right) * cosine.gather(-1, right)).squeeze(-1)
    return EarthMover(1 - (expected_cosine - on_label), cosine, expected_cosine)
