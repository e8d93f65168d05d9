"""NTL-WAS, the Wasserstein form of the Number Token Loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from numsft.errors import UserError
from numsft.losses.base import (
    NumberLoss,
    check_flag,
    check_option,
    is_number,
    reweigh_by_mass,
    squash_distances,
)


@dataclass(frozen=True)
class NTLWAS(NumberLoss):
    """W = Σ_j p̂_j C(v_g, v_j) with C = |v_g − v_j|: NTL-WAS of https://arxiv.org/abs/2411.02083 (NTL).

    p̂ is the softmax over the number tokens. Because the label is one-hot, W is the Wasserstein-1 distance
    between the two (Eq. 2 of the DEL paper, https://arxiv.org/abs/2605.20369).

    The minimum is 0 at p̂_g = 1. Shift-invariant, also with `reweigh`. The gradient is p̂_j (C_j − W):
    never the wrong sign on the label, but wrong digits nearer than W are pushed up, and where p̂_g is tiny
    the gradient on z_g vanishes with it. Training from scratch is sensitive to its weight.

    On multi-digit tokens the distances are those of the values; a token of the label's value costs nothing.
    One huge value makes `squash` flat: all ordinary distances become about 1, which is digit cross-entropy
    without its log.

    The DEL repository's NTL is W / 10, without a weight; that scaling is `number_reduction: reference`.

    Attributes:
        squash: s > 1: costs are mapped linearly onto 1 (nearest wrong value) .. s (farthest), after `power`
            and `modulus`. None leaves them; 9 leaves those of the ten digits.
        power: r ≥ 0: C = |v_g − v_j|^r; 0 is the 0/1 cost, 1 − P(v_g).
        modulus: M > 0: clock distance, min(d mod M, M − d mod M).
        reweigh: m·W + 1.01·max C·(1 − m), m being the mass of the full softmax on number tokens, with
            gradient on the whole vocabulary. `ntloss` has it on by default, the paper does not use it.
        cost: Ground costs C[g][j] ≥ 0 with a zero diagonal, in the order of the number tokens, instead of a
            distance; `squash`, `power` and `modulus` do not go with it.
    """

    name = "ntl_was"
    shift_invariant = True
    default_weight = 0.3
    weight_source = "published"
    default_place_weighting = "none"
    formula = "Σⱼ p̂ⱼ ∣vⱼ − v_g∣"
    minimum = "0 at p̂_g = 1"
    overhead = "number columns only; `reweigh` also the mass on them"
    source = "NTL, NTL-WAS, [arXiv 2411.02083](https://arxiv.org/abs/2411.02083)"

    squash: float | None = None
    power: float = 1.0
    modulus: float | None = None
    reweigh: bool = False
    cost: tuple[tuple[float, ...], ...] | None = None

    def __post_init__(self) -> None:
        """Check the options."""
        check_option(
            self,
            "squash",
            self.squash is None or (is_number(self.squash) and self.squash > 1),
            "a number > 1 or null",
        )
        check_option(self, "power", is_number(self.power) and self.power >= 0, "a number ≥ 0")
        check_option(
            self,
            "modulus",
            self.modulus is None or (is_number(self.modulus) and self.modulus > 0),
            "a number > 0 or null",
        )
        check_flag(self, "reweigh")
        if self.cost is not None:
            object.__setattr__(self, "cost", _checked_costs(self.cost))
            if self.squash is not None or self.power != 1 or self.modulus is not None:
                raise UserError(
                    "ntl_was: cost replaces the distance, so it excludes squash, power and modulus"
                )

    @property
    def needs_log_mass(self) -> bool:
        """Whether `reweigh` is on."""
        return self.reweigh

    def terms(self, logits: Tensor, classes: Tensor, values: Tensor, log_mass: Tensor) -> Tensor:
        """Return W at each position, `[M]`, after `reweigh`."""
        costs = self.ground_costs(values)
        wasserstein = (logits.softmax(-1) * costs[classes]).sum(-1)
        return reweigh_by_mass(wasserstein, costs.max(), log_mass) if self.reweigh else wasserstein

    def ground_costs(self, values: Tensor) -> Tensor:
        """Return C(v_g, v_j) for every pair of number tokens, `[C, C]`, the right token first.

        Raises:
            UserError: If `cost` is not of the size of the number vocabulary.
        """
        n_classes = values.numel()
        if self.cost is not None:
            if len(self.cost) != n_classes:
                raise UserError(
                    f"ntl_was: cost must be {n_classes} x {n_classes}, a row for each number token of this "
                    f"tokenizer, got {len(self.cost)} x {len(self.cost)}"
                )
            return values.new_tensor(self.cost)
        distance = (values.unsqueeze(-1) - values).abs()
        if self.modulus is not None:
            distance = distance.remainder(self.modulus)
            distance = torch.minimum(distance, self.modulus - distance)
        # 0 ** 0 is 1, but the right value costs nothing under the 0/1 cost either.
        costs = torch.where(distance > 0, distance.pow(self.power), 0)
        return costs if self.squash is None else squash_distances(costs, self.squash)


def _checked_costs(cost: Any) -> tuple[tuple[float, ...], ...]:
    """Return a nested sequence of ground costs as tuples of floats.

    Raises:
        UserError: If it is not square, or has an entry that is no number, negative, or non-zero on the
        diagonal.
    """
    if not isinstance(cost, (list, tuple)) or not all(isinstance(row, (list, tuple)) for row in cost):
        raise UserError(f"ntl_was: cost must be a square matrix, a list of rows, got {type(cost).__name__}")
    for g, row in enumerate(cost):
        if len(row) != len(cost):
            raise UserError(
                f"ntl_was: cost must be square, got {len(cost)} rows and {len(row)} entries in row {g}"
            )
        for j, entry in enumerate(row):
            if not is_number(entry) or entry < 0:
                raise UserError(f"ntl_was: cost must hold numbers ≥ 0, got {entry!r} in row {g}, column {j}")
            if g == j and entry != 0:
                raise UserError(
                    f"ntl_was: cost must have a zero diagonal, got {entry!r} in row {g}, column {j}"
                )
    return tuple(tuple(float(entry) for entry in row) for row in cost)
