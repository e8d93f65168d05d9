"""What one optimiser step minimises: a token loss, a number loss, its weight, place weights and reduction.

    (1/N) sum_tokens T_t  +  alpha (1/S) sum_digits w_t R_t

N and S are counted over the whole step by whoever holds it (the trainer); this file says what S is, what
each digit weighs, and how a published loss's defaults are filled in.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import torch
from torch import Tensor

from numsft.errors import UserError
from numsft.losses import NUMBER_LOSSES, TOKEN_LOSSES
from numsft.losses.base import NumberLoss, TokenLoss
from numsft.numerals import (
    NumberTargets,
    NumberVocab,
    check_place_weighting,
    ignore_document_starts,
    number_targets,
    place_weights,
)

REDUCTIONS = ("digits", "weights", "tokens", "reference")
LossT = TypeVar("LossT")


@dataclass(frozen=True)
class Objective:
    """One resolved objective.

    Attributes:
        token_loss: The loss over the whole vocabulary.
        number_loss: The loss over the number tokens, or None for the token loss alone.
        weight: alpha, the number loss's weight in class-sum units.
        place_weighting: `"none"`, `"integer"` or `"float"`.
        place_options: `k`, `beta`, `decimal_offset` where they differ from the defaults.
        reduction: What the weighted sum is divided by: `"digits"` the number positions (numbers, for a
            number-level loss), `"weights"` the sum of the place weights, `"tokens"` all trained tokens,
        `"reference"` as DEL's
            published code does it: (1/C) times each micro-batch's own mean, summed over micro-batches and
            ranks.
    """

    token_loss: TokenLoss
    number_loss: NumberLoss | None = None
    weight: float = 0.0
    place_weighting: str = "none"
    place_options: dict[str, Any] = field(default_factory=dict)
    reduction: str = "digits"

    @classmethod
    def build(
        cls,
        token_loss: str | TokenLoss = "ce",
        number_loss: str | NumberLoss | None = "del",
        *,
        token_loss_kwargs: Mapping[str, Any] | None = None,
        number_loss_kwargs: Mapping[str, Any] | None = None,
        number_loss_weight: float | None = None,
        place_weighting: str | None = None,
        place_weighting_kwargs: Mapping[str, Any] | None = None,
        number_reduction: str = "digits",
    ) -> Objective:
        """Resolve names, options and the published defaults.

        Raises:
            ValueError: One sentence, for an unknown name, an unknown option or a value out of range.
        """
        if number_reduction not in REDUCTIONS:
            raise UserError(
                f"number_reduction is {number_reduction!r}, expected one of {', '.join(REDUCTIONS)}."
            )
        token = make_loss("token_loss", TOKEN_LOSSES, token_loss, token_loss_kwargs)
        place_options = dict(place_weighting_kwargs or {})
        check_place_weighting(place_weighting or "none", place_options)
        if number_loss is None or number_loss == "none":
            return cls(token)
        number = make_loss("number_loss", NUMBER_LOSSES, number_loss, number_loss_kwargs)
        weight = number.default_weight if number_loss_weight is None else number_loss_weight
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 <= weight < float("inf"):
            raise UserError(f"number_loss_weight is {weight!r}, expected a number of at least 0.")
        places = number.default_place_weighting if place_weighting is None else place_weighting
        return cls(token, number, float(weight), places, place_options, number_reduction)

    @classmethod
    def from_config(cls, config: Any) -> Objective:
        """Resolve the objective of a `NumSFTConfig`. Raises what `build` raises."""
        return cls.build(
            config.token_loss,
            config.number_loss,
            token_loss_kwargs=config.token_loss_kwargs,
            number_loss_kwargs=config.number_loss_kwargs,
            number_loss_weight=config.number_loss_weight,
            place_weighting=config.place_weighting,
            place_weighting_kwargs=config.place_weighting_kwargs,
            number_reduction=config.number_reduction,
        )

    @property
    def unit(self) -> str:
        """`"digit"` or `"number"`: what one term of the number loss stands for."""
        return "digit" if self.number_loss is None else self.number_loss.unit

    def check_vocab(self, vocab: NumberVocab) -> None:
        """Raise `UserError` where the loss is defined on the ten digits only and `vocab` has others."""
        if self.number_loss is not None and self.number_loss.single_digits_only and vocab.kind != "digit":
            longest = int(vocab.lengths.max())
            raise UserError(
                f"number_loss {self.number_loss.name!r} is defined on the ten digits only, but this "
                f"tokenizer has {len(vocab.token_ids)} number tokens of {'up to ' * (longest > 1)}{longest} "
                f"digit{'s' * (longest > 1)}; use a loss on values such as ntl_was, crps or smmd."
            )

    def place_weights(self, targets: NumberTargets, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return w, `[batch, seq]`, 0 where there is no number token."""
        weights = place_weights(
            self.place_weighting, targets.places, targets.digits_right, **self.place_options, dtype=dtype
        )
        return weights * targets.mask

    def denominator(self, targets: NumberTargets, n_tokens: Tensor) -> Tensor:
        """Return this micro-batch's part of S, float64; the parts add up over micro-batches and ranks.

        Args:
            targets: The micro-batch's number targets.
            n_tokens: Its number of trained tokens, the part of N.
        """
        if self.reduction == "tokens":
            return n_tokens.double()
        if self.unit == "number":
            # Ids count up from 0; the -1 in front keeps an empty batch at no number.
            numbers = torch.nn.functional.pad(targets.numbers.flatten(), (1, 0), value=-1)
            return (numbers.max() + 1).double()
        if self.reduction == "weights":
            return self.place_weights(targets, torch.float64).sum()
        return targets.mask.sum().double()


def make_loss(
    key: str, table: Mapping[str, type[LossT]], loss: str | LossT, options: Mapping[str, Any] | None
) -> LossT:
    """Return the loss that a name and options, or an instance, stand for.

    Args:
        key: The configuration key, for messages.
        table: `NUMBER_LOSSES` or `TOKEN_LOSSES`.
        loss: A name in `table`, or an instance.
        options: The loss's hyper-parameters; must be empty with an instance.

    Raises:
        ValueError: One sentence that names the nearest right name and lists the others.
    """
    options = dict(options or {})
    if not isinstance(loss, str):
        if options:
            raise UserError(
                f"{key}_kwargs is set beside an instance: give {key} its options when it is made."
            )
        return loss
    if loss not in table:
        raise UserError(f"unknown {key} {loss!r}{_nearest(loss, table)}; known are {', '.join(table)}.")
    known = {f.name for f in fields(table[loss]) if f.init}  # type: ignore[arg-type]
    for name in options:
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise UserError(
                f"unknown option {name!r} of {key} {loss!r}{_nearest(name, known)}; its options: {listed}."
            )
    return table[loss](**options)


def _nearest(name: str, known: Any) -> str:
    match = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean {match[0]!r}?)" if match else ""


def number_loss(
    logits: Tensor,
    labels: Tensor,
    vocab: NumberVocab,
    loss: str | NumberLoss,
    *,
    place_weighting: str | None = None,
    place_weighting_kwargs: Mapping[str, Any] | None = None,
    number_reduction: str = "digits",
    position_ids: Tensor | None = None,
) -> Tensor:
    """Compute a number loss on full logits, for a training loop of your own.

    Args:
        logits: `[batch, seq, vocab]`, any floating dtype; the number columns are taken to float32 first
            (float64 stays float64).
        labels: `[batch, seq]`, Hugging Face labels: -100 where ignored, shifted here.
        vocab: The tokenizer's number tokens.
        loss: A name in `NUMBER_LOSSES` or an instance.
        place_weighting: `"none"`, `"integer"`, `"float"`; None is the loss's own default.
        place_weighting_kwargs: `k`, `beta`, `decimal_offset`.
        number_reduction: As in `Objective`; here the step is this one batch.
        position_ids: `[batch, seq]` of packed documents.

    Returns:
        A scalar without the weight alpha; an attached zero where no label is a number token.

    Raises:
        ValueError: One sentence, for an unknown loss or reduction, or a loss that this vocabulary does not
            suit.
    """
    objective = Objective.build(
        "ce",
        loss,
        place_weighting=place_weighting,
        place_weighting_kwargs=place_weighting_kwargs,
        number_reduction=number_reduction,
    )
    assert objective.number_loss is not None
    vocab = vocab.to(logits.device)
    objective.check_vocab(vocab)
    labels = ignore_document_starts(labels, position_ids)
    targets = number_targets(labels, vocab, position_ids)
    mask = targets.mask[:, 1:]
    selected = logits[:, :-1][mask]
    full = selected.dtype if selected.dtype == torch.float64 else torch.float32
    slice_ = selected[:, vocab.token_ids].to(full)
    weights = objective.place_weights(targets, slice_.dtype)[:, 1:][mask]
    log_mass = None
    if objective.number_loss.needs_log_mass:
        log_mass = slice_.logsumexp(-1) - selected.to(full).logsumexp(-1)
    classes = targets.classes[:, 1:][mask]
    if objective.unit == "number":
        places, numbers = targets.places[:, 1:][mask], targets.numbers[:, 1:][mask]
        total = objective.number_loss(  # type: ignore[call-arg]
            slice_, classes, vocab.values.to(full), places=places, numbers=numbers
        ).sum()
    else:
        total = (objective.number_loss(slice_, classes, vocab.values.to(full), log_mass) * weights).sum()
    denominator = objective.denominator(targets, (labels[:, 1:] != -100).sum())
    if number_reduction == "reference":
        denominator = denominator * len(vocab.token_ids)
    # An empty selection sums to a zero that is still attached to `logits`.
    return total / torch.where(denominator > 0, denominator, 1.0).to(full)
