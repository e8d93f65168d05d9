"""SMMD, the Smooth Maximum Mean Discrepancy loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from numsft.losses.base import NumberLoss, check_option, is_number, squash_distances


@dataclass(frozen=True)
class SMMD(NumberLoss):
    """rᵀK r + α rᵀ(D − K) r, r = p̂ − y: SMMD of https://arxiv.org/abs/2606.27731, sections 3.2 to 3.4.

    p̂ is the softmax over the number tokens, y the one-hot label, K_ij = exp(−d_ij² / 2σ²) with d_ij = |v_i
    − v_j| (section 3.1), D = diag(Σ_j K_ij). The first term is a squared MMD, the second a Dirichlet
    energy, ½ Σ_ij K_ij (r_i − r_j)². The paper's α is 1 / (2 · mean D_ii); the weight is ours, as the
    code has none.

    The minimum is 0 at p̂_g = 1. Shift-invariant; the gradient on z_g is −2 p̂_g SMMD, never of the wrong
    sign, but quadratic in the error and bounded, so it vanishes as p̂ nears a wrong one-hot.

    On multi-digit tokens the published `squash` of 9 maps 0..999 onto distances of 1 to 9, so that all
    close neighbours look about 1 apart and the kernel is nearly flat; `squash: null` keeps σ in units of
    value. Tokens of equal value have K = 1.

    The published code clips the value at 0 against rounding; in terms of r there is nothing to clip.

    Attributes:
        kernel: "gaussian", or "laplace" for exp(−d / σ).
        sigma: σ > 0, or several, whose kernels are averaged.
        smoothness: α ≥ 0, or "auto" for the paper's.
        squash: s > 1: distances are mapped linearly onto 1 (nearest other value) .. s (farthest) first; 9
            leaves the ten digits as they are. None turns it off.
    """

    name = "smmd"
    shift_invariant = True
    default_weight = 0.3
    weight_source = "ours"
    default_place_weighting = "none"
    formula = "rᵀK r + α rᵀ(D − K) r, r = p̂ − y, Kᵢⱼ = exp(−(vᵢ − vⱼ)² / 2σ²)"
    minimum = "0 at p̂_g = 1"
    overhead = "number columns and a C × C product"
    source = "SMMD, sections 3.2 to 3.4, [arXiv 2606.27731](https://arxiv.org/abs/2606.27731)"

    kernel: str = "gaussian"
    sigma: float | tuple[float, ...] = 2.0
    smoothness: float | str = "auto"
    squash: float | None = 9.0

    def __post_init__(self) -> None:
        """Check the options."""
        check_option(self, "kernel", self.kernel in ("gaussian", "laplace"), '"gaussian" or "laplace"')
        if isinstance(self.sigma, list):
            object.__setattr__(self, "sigma", tuple(self.sigma))
        check_option(
            self,
            "sigma",
            len(self.bandwidths) > 0 and all(is_number(sigma) and sigma > 0 for sigma in self.bandwidths),
            "a number > 0 or a list of them",
        )
        check_option(
            self,
            "smoothness",
            self.smoothness == "auto" or (is_number(self.smoothness) and self.smoothness >= 0),
            '"auto" or a number ≥ 0',
        )
        check_option(
            self,
            "squash",
            self.squash is None or (is_number(self.squash) and self.squash > 1),
            "a number > 1 or null",
        )

    @property
    def bandwidths(self) -> tuple[float, ...]:
        """The kernel's bandwidths, one or several."""
        return self.sigma if isinstance(self.sigma, tuple) else (self.sigma,)

    def terms(self, logits: Tensor, classes: Tensor, values: Tensor, log_mass: Tensor) -> Tensor:
        """Return the discrepancy at each position, `[M]`."""
        similarity = self.similarities(values)
        degree = similarity.sum(-1)
        alpha = 0.5 / degree.mean() if isinstance(self.smoothness, str) else self.smoothness
        residual = logits.softmax(-1) - torch.nn.functional.one_hot(classes, values.numel()).to(logits.dtype)
        metric = (1 - alpha) * similarity + alpha * degree.diag()
        return (residual @ metric * residual).sum(-1)

    def similarities(self, values: Tensor) -> Tensor:
        """Return the kernel matrix K, `[C, C]`."""
        distance = (values.unsqueeze(-1) - values).abs()
        if self.squash is not None:
            distance = squash_distances(distance, self.squash)
        if self.kernel == "gaussian":
            kernels = [(-(distance / sigma).square() / 2).exp() for sigma in self.bandwidths]
        else:
            kernels = [(-distance / sigma).exp() for sigma in self.bandwidths]
        return torch.stack(kernels).mean(0)
