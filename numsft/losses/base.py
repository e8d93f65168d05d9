"""What every loss is: a frozen dataclass of hyper-parameters whose call is the formula, in plain autograd."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, NamedTuple, TypeGuard

import torch
from torch import Tensor

from numsft.errors import UserError


class TokenLoss:
    """A loss over the whole vocabulary, one term a trained token, written in terms of its cross-entropy.

    Called as ``loss(ce [M], emo [M] | None = None) -> [M]``: `ce` is each token's cross-entropy in nats,
    `emo` its earth-mover term where `needs_cost_embedding` says that one is wanted. Plain autograd; factors
    that the paper stops the gradient through are detached here. The head differentiates this call with
    respect to `ce` and `emo` and folds the two coefficients into the gradient of the softmax that it writes
    anyway.
    """

    name: ClassVar[str]
    needs_cost_embedding: ClassVar[bool] = False
    formula: ClassVar[str]
    minimum: ClassVar[str]
    overhead: ClassVar[str]
    """What the loss costs beyond cross-entropy, in words."""
    source: ClassVar[str]

    def __call__(self, ce: Tensor, emo: Tensor | None = None) -> Tensor:
        """Return the loss of each token, `[M]`, in nats and in the dtype of `ce`."""
        raise NotImplementedError


class NumberLoss:
    """A loss over the number tokens alone, one term a digit (`unit = "digit"`).

    Called as ``loss(logits [M, C], classes [M], values [C], log_mass=None) -> [M]``: the logits of the C
    number tokens at the M number positions, the index of the right one, and the tokens' numeric values.
    Pure, plain autograd, in the dtype it is given (float64 stays float64); sums over classes, never means.
    A subclass writes its formula in `terms`.
    """

    name: ClassVar[str]
    unit: ClassVar[str] = "digit"
    single_digits_only: ClassVar[bool] = False
    """True where the loss is only defined on the ten digits 0..9."""
    shift_invariant: ClassVar[bool]
    """True where one constant added to all logits of a position never changes the loss."""
    default_weight: ClassVar[float]
    weight_source: ClassVar[str]
    """`"published"` or `"ours"`."""
    default_place_weighting: ClassVar[str]
    formula: ClassVar[str]
    minimum: ClassVar[str]
    overhead: ClassVar[str]
    """What the loss costs beyond cross-entropy, in words."""
    source: ClassVar[str]

    @property
    def depends_on_level(self) -> bool:
        """Whether a constant added to all number logits changes the loss with its present options."""
        return not self.shift_invariant

    @property
    def needs_log_mass(self) -> bool:
        """Whether the call wants `log_mass [M]`: log of the full softmax's mass on the number tokens."""
        return False

    def __call__(
        self, logits: Tensor, classes: Tensor, values: Tensor, log_mass: Tensor | None = None
    ) -> Tensor:
        """Return the loss of each number position, `[M]`, in the dtype of `logits`.

        Half-precision logits are worked on in float32, also inside an autocast region: bfloat16 keeps eight
        bits, so a value such as 345 or a logit of 20.1 would be rounded before the formula sees it.

        Args:
            logits: Logits of the number tokens at the number positions, `[M, C]`.
            classes: Index of the right number token, `[M]`, int64.
            values: Numeric value of each number token, `[C]`.
            log_mass: Log of the full softmax's mass on the number tokens, `[M]`, where `needs_log_mass`.

        Raises:
            ValueError: If `log_mass` is missing where the loss needs it.
        """
        if log_mass is None:
            if self.needs_log_mass:
                raise ValueError(
                    f"{self.name}: with these options the loss needs log_mass [M], the log of the full "
                    "softmax's mass on the number tokens"
                )
            log_mass = logits.new_zeros(logits.shape[0])
        dtype = torch.promote_types(logits.dtype, torch.float32)
        with torch.autocast(logits.device.type, enabled=False):
            terms = self.terms(logits.to(dtype), classes, values.to(dtype), log_mass.to(dtype))
        return terms.to(logits.dtype)

    def terms(self, logits: Tensor, classes: Tensor, values: Tensor, log_mass: Tensor) -> Tensor:
        """Return the formula's value at each position, `[M]`; every float is float32 or float64.

        `log_mass` is zero (all mass on the number tokens) where the loss did not ask for it.
        """
        raise NotImplementedError


class Digits(NamedTuple):
    """Where the M digits of a micro-batch stand in its numbers."""

    places: Tensor
    """Place of each digit, `[M]`: units 0, tens 1, tenths -1."""
    numbers: Tensor
    """Contiguous id of each digit's number, `[M]`, int64."""
    n_numbers: int

    def sum(self, per_digit: Tensor) -> Tensor:
        """Return the sum of `per_digit [M]` over each number's digits, `[n_numbers]`."""
        return per_digit.new_zeros(self.n_numbers).index_add(0, self.numbers, per_digit)

    def outermost(self, side: Literal["amax", "amin"]) -> Tensor:
        """Return the highest ("amax") or lowest place of each number, `[n_numbers]`."""
        empty = self.places.new_zeros(self.n_numbers)
        return empty.scatter_reduce(0, self.numbers, self.places, side, include_self=False)


class NumberLevelLoss(NumberLoss):
    """A loss with one term a whole number (`unit = "number"`).

    Called as ``loss(logits [M, C], classes [M], values [C], places=[M], numbers=[M], generator=None) ->
    [n_numbers]``, `numbers` being the contiguous id (0, 0, 1, ...) of each position's number and `places`
    its place (units 0, tens 1, tenths -1). A subclass writes its formula in `number_terms`.
    """

    unit: ClassVar[str] = "number"
    stochastic: ClassVar[bool] = False
    """Whether the call draws noise."""

    @property
    def needs_token_loss(self) -> bool:
        """Whether the call wants `ce`: the micro-batch's mean token cross-entropy, a scalar."""
        return False

    def __call__(  # type: ignore[override]  # a number's digits cannot be scored one by one
        self,
        logits: Tensor,
        classes: Tensor,
        values: Tensor,
        places: Tensor,
        numbers: Tensor,
        generator: torch.Generator | Tensor | None = None,
        ce: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of each number, `[n_numbers]`, in the dtype of `logits`.

        Args:
            logits: Logits of the ten digits at the number positions, `[M, C]`.
            classes: Index of the right digit, `[M]`, int64.
            values: Numeric value of each class, `[C]`.
            places: Place of each digit, `[M]`, int: units 0, tens 1, tenths -1.
            numbers: Contiguous id of each digit's number, `[M]`, int64: 0, 0, 1, ...
            generator: Source of the noise, for a loss that draws any, or the standard exponential draws
                themselves, `[M, C]`; None draws from torch's global generator.
            ce: Mean token cross-entropy of the micro-batch, a scalar; required by `needs_token_loss`.

        Raises:
            ValueError: If `ce` is missing where the loss needs it.
        """
        if ce is None:
            if self.needs_token_loss:
                raise ValueError(
                    f"{self.name}: with these options the loss needs ce, the micro-batch's mean token "
                    "cross-entropy"
                )
            ce = logits.new_ones(())
        digits = Digits(places, numbers, int(numbers.max()) + 1 if numbers.numel() else 0)
        dtype = torch.promote_types(logits.dtype, torch.float32)
        with torch.autocast(logits.device.type, enabled=False):
            terms = self.number_terms(
                logits.to(dtype), classes, values.to(dtype), digits, generator, ce.detach().to(dtype)
            )
        return terms.to(logits.dtype)

    def number_terms(
        self,
        logits: Tensor,
        classes: Tensor,
        values: Tensor,
        digits: Digits,
        generator: torch.Generator | Tensor | None,
        ce: Tensor,
    ) -> Tensor:
        """Return the formula's value for each number, `[n_numbers]`; every float is float32 or float64."""
        raise NotImplementedError


def is_number(value: object) -> TypeGuard[float]:
    """Whether `value` is a finite int or float; a bool is not a number here."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def check_option(loss: TokenLoss | NumberLoss, option: str, valid: bool, expected: str) -> None:
    """Refuse an option of `loss` that is not `valid`, naming the option, its value and the range.

    Raises:
        UserError: If `valid` is false.
    """
    if not valid:
        raise UserError(f"{loss.name}: {option} must be {expected}, got {getattr(loss, option)!r}")


def check_flag(loss: TokenLoss | NumberLoss, option: str) -> None:
    """Refuse an option of `loss` that is not true or false: the string "no" would otherwise count as true.

    Raises:
        UserError: If the option is not a bool.
    """
    check_option(loss, option, isinstance(getattr(loss, option), bool), "true or false")


def distances(classes: Tensor, values: Tensor) -> Tensor:
    """Return |v_j − v_g| of every number token j from the right one g, `[M, C]`."""
    return (values - values[classes].unsqueeze(-1)).abs()


def binary_cross_entropies(logits: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Return B_j = −y_j log σ_j − (1 − y_j) log(1 − σ_j) and its log-error, both `[M, C]`.

    The log-error is log σ(−z_g) for the right class and log σ(z_j) for the others: the log of how wrong
    each sigmoid is. Both come from `logsigmoid`, which neither overflows nor, unlike `softplus`, turns
    linear at 20.
    """
    towards_error = logits.scatter(-1, classes.unsqueeze(-1), -logits.gather(-1, classes.unsqueeze(-1)))
    log_error = torch.nn.functional.logsigmoid(towards_error)
    return -torch.nn.functional.logsigmoid(-towards_error), log_error


def squash_distances(costs: Tensor, squash: float) -> Tensor:
    """Map the non-zero entries of a cost matrix `[C, C]` linearly onto 1 (nearest) .. `squash` (farthest)."""
    positive = costs > 0
    nearest = costs.masked_fill(~positive, torch.inf).min()
    spread = (costs.max() - nearest).clamp_min(torch.finfo(costs.dtype).tiny)
    return torch.where(positive, 1 + (costs - nearest) * ((squash - 1) / spread), 0)


def reweigh_by_mass(loss: Tensor, largest: Tensor, log_mass: Tensor) -> Tensor:
    """Return m·L + 1.01·L_max·(1 − m), m the full softmax's mass on number tokens: `reweigh` of `ntloss`."""
    return log_mass.exp() * loss - 1.01 * largest * torch.expm1(log_mass)
