"""What every loss is: a frozen dataclass of hyper-parameters whose call is the formula, in plain autograd."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor


class TokenLoss:
    """A loss over the whole vocabulary, one term a trained token, written in terms of its cross-entropy.

    Called as ``loss(ce [M], emo [M] | None = None) -> [M]``: `ce` is each token's cross-entropy in nats, `emo` its
    earth-mover term where `needs_cost_embedding` says that one is wanted. Plain autograd; factors that the paper
    stops the gradient through are detached here. The head differentiates this call with respect to `ce` and `emo`
    and folds the two coefficients into the gradient of the softmax that it writes anyway.
    """

    name: ClassVar[str]
    needs_cost_embedding: ClassVar[bool] = False
    formula: ClassVar[str]
    minimum: ClassVar[str]
    cost: ClassVar[str]
    source: ClassVar[str]

    def __call__(self, ce: Tensor, emo: Tensor | None = None) -> Tensor:
        """Return the loss of each token, `[M]`, in nats and in the dtype of `ce`."""
        raise NotImplementedError


class NumberLoss:
    """A loss over the number tokens alone, one term a digit (`unit = "digit"`).

    Called as ``loss(logits [M, C], classes [M], values [C], log_mass=None) -> [M]``: the logits of the C number
    tokens at the M number positions, the index of the right one, and the tokens' numeric values. Pure, plain
    autograd, in the dtype it is given (float64 stays float64); sums over classes, never means.
    """

    name: ClassVar[str]
    unit: ClassVar[str] = "digit"
    single_digits_only: ClassVar[bool] = False
    """True where the loss is only defined on the ten digits 0..9."""
    default_weight: ClassVar[float]
    weight_source: ClassVar[str]
    """`"published"` or `"ours"`."""
    default_place_weighting: ClassVar[str]
    formula: ClassVar[str]
    minimum: ClassVar[str]
    cost: ClassVar[str]
    source: ClassVar[str]

    @property
    def needs_log_mass(self) -> bool:
        """Whether the call wants `log_mass [M]`: log of the full softmax's mass on the number tokens."""
        return False

    def __call__(self, logits: Tensor, classes: Tensor, values: Tensor, log_mass: Tensor | None = None) -> Tensor:
        """Return the loss of each number position, `[M]`, in the dtype of `logits`."""
        raise NotImplementedError


class NumberLevelLoss(NumberLoss):
    """A loss with one term a whole number (`unit = "number"`).

    Called as ``loss(logits [M, C], classes [M], values [C], places=[M], numbers=[M], generator=None) ->
    [n_numbers]``, `numbers` being the contiguous id (0, 0, 1, ...) of each position's number and `places` its place
    (units 0, tens 1, tenths -1).
    """

    unit: ClassVar[str] = "number"
