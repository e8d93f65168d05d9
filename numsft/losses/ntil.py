"""NTIL, the Numerical Token Integrity Loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from numsft.losses.base import (
    Digits,
    NumberLevelLoss,
    check_flag,
    check_option,
    distances,
    is_number,
)


@dataclass(frozen=True)
class NTIL(NumberLevelLoss):
    """mean_i ρ^i EMD_i + λ_r |X − Y| / (max(X, Y) + 1) + λ_m log[(max(X, Y) + 1) / (min(X, Y) + 1)].

    One term a number. The loss of https://arxiv.org/abs/2505.13077 (NTIL, ACL 2025), as its code computes
    it. EMD_i = Σ_j p̂_ij |v_j − v_g| over the ten digits, i counting from 0 at the right end of a run of
    digits (a decimal point ends a run). Y is the label, X the number of the arg-max digits, which passes
    the gradient straight through to a Gumbel softmax of temperature τ. Decimals enter X and Y with their
    places; the code, where a point ends a number, scores 12.34 as 12 and 34. It also averages EMD over the
    digits of a row and the other two over its numbers; here each number is averaged over its own digits, so
    a number counts once, whatever its length.

    The minimum is 0 at p̂ one-hot on the label. Shift-invariant. The EMD term has NTL-WAS's gradient, which
    vanishes with p̂_g; the other two give all digits of a number the sign of its total error, so a right
    digit is pushed *down* whenever that moves X the right way. They are stochastic by `noise`: pass a
    seeded `generator`, whose draws do not depend on the dtype. The magnitude term is steep where X or Y has
    leading zeros that the other lacks: its slope reaches 10^(places − 1).

    Published, the total is CE + 0.3 · sg[CE / (NTIL + 1e-10)] · NTIL, which is always 1.3 · CE in value and
    gives NTIL whatever weight makes it as large as the cross-entropy. That is `self_scale`: each number is
    multiplied by sg[CE / (N + 1e-10)], with CE (`ce`) the mean token cross-entropy of the micro-batch and N
    the mean over the numbers of this call. It therefore depends on how a step is cut into micro-batches; it
    is off by default, and 0.3 then is an ordinary weight.

    Single digits only: places are powers of ten of one digit each.

    Attributes:
        rho: ρ > 0, growth of the EMD term's weight from one place to the next.
        relative: λ_r ≥ 0, weight of the relative term.
        magnitude: λ_m ≥ 0, weight of the order-of-magnitude term.
        tau: τ > 0, temperature of the Gumbel softmax.
        noise: ≥ 0, scale of the Gumbel noise.
        self_scale: Scale the loss to the micro-batch's cross-entropy.
    """

    name = "ntil"
    stochastic = True
    single_digits_only = True
    shift_invariant = True
    default_weight = 0.3
    weight_source = "published"
    default_place_weighting = "none"
    formula = "meanᵢ ρⁱ Σⱼ p̂ᵢⱼ ∣vⱼ − v_g∣ + λᵣ ∣X − Y∣ / (max + 1) + λₘ log[(max + 1) / (min + 1)]"
    minimum = "0 at p̂ one-hot on the label"
    overhead = "number columns only, one term a number"
    source = "NTIL, [arXiv 2505.13077](https://arxiv.org/abs/2505.13077)"

    rho: float = 1.2
    relative: float = 0.2
    magnitude: float = 0.2
    tau: float = 0.1
    noise: float = 0.01
    self_scale: bool = False

    def __post_init__(self) -> None:
        """Check the options."""
        for option in ("rho", "tau"):
            value = getattr(self, option)
            check_option(self, option, is_number(value) and value > 0, "a number > 0")
        for option in ("relative", "magnitude", "noise"):
            value = getattr(self, option)
            check_option(self, option, is_number(value) and value >= 0, "a number ≥ 0")
        check_flag(self, "self_scale")

    @property
    def needs_token_loss(self) -> bool:
        """Whether `self_scale` is on."""
        return self.self_scale

    def number_terms(
        self,
        logits: Tensor,
        classes: Tensor,
        values: Tensor,
        digits: Digits,
        generator: torch.Generator | Tensor | None,
        ce: Tensor,
    ) -> Tensor:
        """Return the loss of each number, `[n_numbers]`."""
        loss = self._place_weighted_emd(logits, classes, values, digits)

        # In units of the first digit's place, because 10^39 overflows float32. The 1 of the formula then is a
        # tiny number; past 16 digits its reciprocal, the slope of the last term at X = 0, would overflow too.
        top = digits.outermost("amax")
        power = 10.0 ** (digits.places - top[digits.numbers]).to(logits.dtype)
        one = (10.0 ** -top.to(logits.dtype)).clamp_min(1e-16)
        predicted = digits.sum(power * (self._drawn_digits(logits, generator) * values).sum(-1))
        actual = digits.sum(power * values[classes])
        error = (predicted - actual).abs()
        loss = loss + self.relative * error / (torch.maximum(predicted, actual) + one)
        loss = loss + self.magnitude * torch.log1p(error / (torch.minimum(predicted, actual) + one))

        return loss * (ce / (loss.mean() + 1e-10)).detach() if self.self_scale else loss

    def _place_weighted_emd(self, logits: Tensor, classes: Tensor, values: Tensor, digits: Digits) -> Tensor:
        """Return the mean over each number's digits of ρ^i EMD_i, `[n_numbers]`."""
        last_decimal = digits.outermost("amin")[digits.numbers]
        position = torch.where(digits.places < 0, digits.places - last_decimal, digits.places)
        emd = (logits.softmax(-1) * distances(classes, values)).sum(-1)
        return digits.sum(emd * self.rho ** position.to(emd.dtype)) / digits.sum(torch.ones_like(emd))

    def _drawn_digits(self, logits: Tensor, generator: torch.Generator | Tensor | None) -> Tensor:
        """Return the noisy logits' arg-max digits, one-hot `[M, C]`, with the gradient of their softmax."""
        gumbel = -_exponential(logits, generator).log().to(logits)
        soft = ((logits + self.noise * gumbel) / self.tau).softmax(-1)
        hard = torch.zeros_like(soft).scatter(-1, soft.argmax(-1, keepdim=True), 1.0)
        return hard + (soft - soft.detach())


def _exponential(logits: Tensor, generator: torch.Generator | Tensor | None) -> Tensor:
    """Return standard exponential draws in the shape of `logits`, float32: the same in every dtype."""
    if isinstance(generator, Tensor):
        return generator
    device = logits.device if generator is None else generator.device
    return torch.empty(logits.shape, dtype=torch.float32, device=device).exponential_(generator=generator)
