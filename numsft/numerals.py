"""Where the numbers are: the number tokens of a tokenizer, and each label's digit, place and number.

How digit runs are read (every row of the table is a test):

| text | numbers | places |
|---|---|---|
| `42` | one | 1 0 |
| `12.34` | one; a point joins two runs when a number token stands on both sides | 1 0 · -1 -2 |
| `.5` | one, an integer: nothing stands before the point | · 0 |
| `42.` | one; a trailing point is punctuation | 1 0 · |
| `1.2.3` | two, `1.2` and `3`: the second point starts a new number | 0 · -1 · 0 |
| `1,234` | two, `1` and `234`: a comma is no part of a number | 0 , 2 1 0 |
| `-7`, `+7` | one; a sign is no part of a number | - 0 |
| `1e5`, `1.5e-3` | mantissa and exponent are two numbers | 0 e 0 |
| `2024-06-01` | three | 3 2 1 0 - 1 0 - 1 0 |

A run never crosses the end of a row, an ignored label, or the start of a packed document.

Which tokens are number tokens (every row is a test): those whose text is ASCII digits, with or without spaces
before them, and that encoding such a text really gives.

| token | number token? |
|---|---|
| `7`, `42`, `007` | yes: values 7, 42, 7, of 1, 2 and 3 digits |
| `Ġ42` beside `42` (GPT-2), `▁7` beside `7` | yes, a class of its own, which begins a number: `1 42` is two |
| `▁7` where a plain `7` is never given | yes, also inside a number |
| a piece that the tokenizer never gives (`▁7` of a tokenizer that writes `▁` and `7`) | no |
| a byte, `<0x37>`, of a vocabulary that has `7` | no, it is never given |
| a byte, `<0x37>`, of a vocabulary without `7` | yes, it is how that 7 is written |
| full-width `７`, Arabic-Indic `٧`, `²`, `½`, Roman `Ⅷ`, or their bytes | no; they end a run |
| the same where the tokenizer's normaliser writes them in ASCII (NFKC) | yes, labels hold the ASCII digits |
| a token that mixes digits with more: `1st`, `.5`, `<extra_id_7>`, `<num>` | no; it ends a run |
| a token that a user added: `10`, `007` | yes, special or not; so the ten digits are no longer alone |
| a digit that is written as several tokens, or as `<unk>` | no |
| only some of the ten digits | those; the rest have no number loss, which is logged |

The vocabulary's kind is `"digit"` where the number tokens are exactly one token for each of the ten digits,
and `"integer"` for all else.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from numsft.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

IGNORED = -100
PLACE_WEIGHTINGS = ("none", "integer", "float")

# The marks with which byte-level BPE and SentencePiece write spaces inside a piece; a digit as a byte.
_PIECE = re.compile(r"([Ġ▁ ]*)([0-9]+)|<0x3([0-9])>")
_POINTS = (".", "<0x2E>")
# In a glued context no space stands before a digit, not even the one that SentencePiece puts before a text.
_GLUED_CONTEXTS = ("a{}", "={}", "({})", "a1{}", "a1.{}")
_OTHER_CONTEXTS = ("{}", " {}", "a {}", "{} b", "{}{}", "\n{}")


@dataclass(frozen=True, eq=False)
class NumberVocab:
    """The number tokens of a tokenizer; C of them.

    Attributes:
        token_ids: `[C]` int64, the tokens whose text is ASCII digits.
        values: `[C]` float32, the numeric value of each (rounded above 2^24).
        lengths: `[C]` int64, the number of digits in each (`001` is 3).
        decimal_point_ids: `[P]` int64, the tokens that write the point of `1.5`.
        kind: `"digit"`: exactly the ten digits, in the order 0..9; `"integer"`: anything else, e.g. a
            tokenizer with multi-digit tokens.
        after_space: `[C]` bool, whether the token holds a space before its digits (`Ġ42`) and so begins a
            number. None on construction: none does.
    """

    token_ids: Tensor
    values: Tensor
    lengths: Tensor
    decimal_point_ids: Tensor
    kind: str
    after_space: Tensor = None  # type: ignore[assignment]  # filled in below

    def __post_init__(self) -> None:
        """Fill in `after_space`."""
        if self.after_space is None:
            object.__setattr__(self, "after_space", torch.zeros_like(self.token_ids, dtype=torch.bool))

    @classmethod
    def from_tokenizer(cls, tokenizer: PreTrainedTokenizerBase) -> NumberVocab:
        """Find the number tokens by encoding numbers in context; the tokenizer is only read.

        See the module's second table for what counts. No id is assumed, and the cost is one look at each
        piece of the vocabulary plus the encoding of some thousand short texts: about a second for the 1,700
        number tokens of GPT-2, less for a digit-level tokenizer of 250,000 pieces.

        Args:
            tokenizer: Any transformers tokenizer: fast, slow or `MistralCommonBackend`.

        Raises:
            ValueError: If no number token is found.
        """
        pieces: dict[int, re.Match[str]] = {}
        points: set[int] = set()
        for piece, token_id in tokenizer.get_vocab().items():
            if match := _PIECE.fullmatch(piece):
                pieces[token_id] = match
            elif piece.lstrip("Ġ▁ ") in _POINTS:
                points.add(token_id)
        digits = {token_id: match[2] or match[3] for token_id, match in pieces.items()}
        texts = sorted(set(digits.values()))
        glued = _emitted(tokenizer, texts, _GLUED_CONTEXTS)
        emitted = glued | _emitted(tokenizer, texts, _OTHER_CONTEXTS)
        found = sorted(
            (int(text), len(text), token_id) for token_id, text in digits.items() if token_id in emitted
        )
        if not found:
            raise UserError(
                f"{type(tokenizer).__name__} has no number tokens: encoding the digits 0 to 9 never gives a "
                "token that is one digit or more, so a number loss has nothing to act on; "
                "set `number_loss: none`."
            )
        values, lengths, token_ids = (list(column) for column in zip(*found, strict=True))
        points &= _emitted(tokenizer, texts[:100], ("{}.{}", "a {}.{}"))
        single = {value for value, length in zip(values, lengths, strict=True) if length == 1}
        if missing := [str(digit) for digit in range(10) if digit not in single]:
            logger.warning(
                "%s has no token for the single digit %s: where a number needs it, it gets no number loss.",
                type(tokenizer).__name__,
                ", ".join(missing),
            )
        return cls(
            token_ids=torch.tensor(token_ids),
            values=torch.tensor(values, dtype=torch.float32),
            lengths=torch.tensor(lengths),
            decimal_point_ids=torch.tensor(sorted(points), dtype=torch.long),
            kind="digit" if values == list(range(10)) and set(lengths) == {1} else "integer",
            after_space=torch.tensor([bool(pieces[i][1]) and i not in glued for i in token_ids]),
        )

    @classmethod
    def empty(cls) -> NumberVocab:
        """Return the vocabulary of a tokenizer without number tokens, for a run without a number loss."""
        nothing = torch.zeros(0, dtype=torch.long)
        return cls(nothing, nothing.float(), nothing, nothing, "integer")

    def to(self, device: torch.device | str) -> NumberVocab:
        """Return the same vocabulary with its tensors on `device` (itself when they are there already)."""
        if self.token_ids.device == torch.device(device):
            return self
        return NumberVocab(
            self.token_ids.to(device),
            self.values.to(device),
            self.lengths.to(device),
            self.decimal_point_ids.to(device),
            self.kind,
            self.after_space.to(device),
        )


def _emitted(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], contexts: Sequence[str]) -> set[int]:
    """Return every id that `texts` in `contexts` are encoded to; the tokenizer is left as it was."""
    if not texts:
        return set()
    probes = [context.format(*[text] * context.count("{}")) for text in texts for context in contexts]
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    before = backend and (backend.truncation, backend.padding, backend.encode_special_tokens)
    rows = tokenizer(probes, add_special_tokens=False)["input_ids"]
    if backend:  # a call leaves its own settings in a fast tokenizer's backend
        truncation, padding, backend.encode_special_tokens = before
        if truncation is not None:
            backend.enable_truncation(**truncation)
        if padding is not None:
            backend.enable_padding(**padding)
    return {token_id for ids in rows for token_id in ids}


@dataclass(frozen=True, eq=False)
class NumberTargets:
    """What stands at every label, all `[batch, seq]`, describing `labels[:, t]` unshifted.

    Attributes:
        mask: bool, whether the label is a number token.
        classes: int64, index into `NumberVocab.token_ids`; 0 where `mask` is false.
        places: int64, place of the token's last digit: units 0, tens 1, tenths -1; 0 where `mask` is false.
        digits_right: int64, digits to the right in the same unbroken digit run; 0 where `mask` is false.
        numbers: int64, which number of the batch the token belongs to, counted 0, 1, ... in reading order;
            -1 where `mask` is false.
    """

    mask: Tensor
    classes: Tensor
    places: Tensor
    digits_right: Tensor
    numbers: Tensor


def number_targets(labels: Tensor, vocab: NumberVocab, position_ids: Tensor | None = None) -> NumberTargets:
    """Find class, place and number of every number token in `labels`. See the module's table for the rules.

    Args:
        labels: `[batch, seq]` token ids, -100 where ignored. Read as they are, unshifted.
        vocab: The tokenizer's number tokens.
        position_ids: `[batch, seq]` or `[1, seq]`; a document starts where it is 0 or not one more than the
            last.

    Returns:
        Targets on the device of `labels`; vectorised, without a device synchronisation.
    """
    vocab = vocab.to(labels.device)
    batch, length = labels.shape
    if len(vocab.token_ids) == 0:
        none = torch.zeros_like(labels)
        return NumberTargets(none.bool(), none, none, none, none - 1)
    order = vocab.token_ids.argsort()
    slot = torch.searchsorted(vocab.token_ids[order], labels).clamp(max=len(order) - 1)
    classes = order[slot]
    mask = vocab.token_ids[classes] == labels
    classes = classes * mask
    point = torch.isin(labels, vocab.decimal_point_ids)

    # Nothing left of a document's start, or of a token that begins with a space, belongs to its number.
    new = document_starts(labels, position_ids) | (vocab.after_space[classes] & mask)
    after = torch.zeros_like(mask)  # whether the token goes on from a number token to its left
    after[:, 1:] = mask[:, :-1] & ~new[:, 1:]
    run_start = mask & ~after
    last = torch.ones_like(mask)  # whether the next token does not continue this run
    last[:, :-1] = ~(mask[:, 1:] & after[:, 1:])
    run_end = mask & last

    # A point with a number token on both sides links two runs. Along a chain of links only every second one
    # joins: `1.2.3.4` is 1.2 and 3.4.
    link = torch.zeros_like(mask)
    link[:, 1:-1] = point[:, 1:-1] & after[:, 1:-1] & mask[:, 2:] & ~new[:, 2:]
    linked_start = torch.zeros_like(mask)
    linked_start[:, 1:] = run_start[:, 1:] & link[:, :-1]
    index = torch.arange(length, device=labels.device).expand(batch, length)
    links_so_far = link.cumsum(1)
    chain_start = _last_where(run_start & ~linked_start, index)
    ordinal = links_so_far - links_so_far.gather(
        1, chain_start
    )  # links since the chain began, this one included
    decimal_start = linked_start & (ordinal % 2 == 1)

    digits = (vocab.lengths[classes] * mask).cumsum(1)
    start = _last_where(run_start, index)
    # Backwards, the first run end at or after each token.
    end = (length - 1 - _last_where(run_end.flip(1), index)).flip(1)
    digits_right = (digits.gather(1, end) - digits) * mask
    before_run = digits.gather(1, start) - vocab.lengths[classes.gather(1, start)]
    is_decimal = decimal_start.gather(1, start) & mask
    places = torch.where(is_decimal, before_run - digits, digits_right) * mask
    numbers = (run_start & ~decimal_start).flatten().cumsum(0).view(batch, length) - 1
    return NumberTargets(mask, classes, places, digits_right, numbers.masked_fill(~mask, -1))


def _last_where(flag: Tensor, index: Tensor) -> Tensor:
    """For each position the index of the last true `flag` at or before it, 0 where there is none."""
    return (index * flag).cummax(1).values


def document_starts(labels: Tensor, position_ids: Tensor | None = None) -> Tensor:
    """Return `[batch, seq]` bool, true at the first token of each row and of each packed document.

    Args:
        labels: `[batch, seq]`, for its shape and device.
        position_ids: `[batch, seq]` or `[1, seq]`; a document starts at 0 or where it does not go up by one.
    """
    starts = torch.zeros_like(labels, dtype=torch.bool)
    starts[:, :1] = True
    if position_ids is not None:
        position_ids = position_ids.to(labels.device).expand_as(labels)
        starts |= position_ids == 0
        starts[:, 1:] |= position_ids[:, 1:] != position_ids[:, :-1] + 1
    return starts


def ignore_document_starts(labels: Tensor, position_ids: Tensor | None = None) -> Tensor:
    """Return `labels` with the first token of each row and document ignored, since nothing predicts it."""
    return labels.masked_fill(document_starts(labels, position_ids), IGNORED)


def place_weights(
    weighting: str,
    places: Tensor,
    digits_right: Tensor,
    *,
    k: float = 2.0,
    beta: float = 1.02,
    decimal_offset: int = 1,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """Return the place weight of each digit, in `dtype` and the shape of `places`.

    `"none"`: 1. `"integer"` (DIST2Loss, arXiv 2503.02379): `digits_right + 1`, so `42.5` gets 2, 1, 1.
    `"float"` (Digit Entropy Loss, arXiv 2605.20369, Eq. 9): `k (place + 1)` for place >= 0 and
    `beta ** (place - decimal_offset)` below.

    Args:
        weighting: One of `PLACE_WEIGHTINGS`.
        places: Place of each digit (units 0, tens 1, tenths -1), integer.
        digits_right: Digits to the right in the same unbroken run, same shape.
        k: Slope over integer places, above 0.
        beta: Base over decimal places, above 0.
        decimal_offset: 1 as the paper's code computes (tenths `beta ** -2`), 0 as its place indices read.
        dtype: Floating dtype of the result.

    Raises:
        ValueError: If `weighting` is unknown or an option is out of range.
    """
    check_place_weighting(weighting, {"k": k, "beta": beta, "decimal_offset": decimal_offset})
    if weighting == "none":
        return torch.ones_like(places, dtype=dtype)
    if weighting == "integer":
        return (digits_right + 1).to(dtype)
    place = places.to(dtype)
    return torch.where(place >= 0, k * (place + 1), beta ** (place - decimal_offset))


def check_place_weighting(weighting: str, options: Mapping[str, Any]) -> None:
    """Raise a one-sentence `ValueError` unless `weighting` and its `options` are usable."""
    if weighting not in PLACE_WEIGHTINGS:
        raise UserError(f"place_weighting is {weighting!r}, expected one of {_listed(PLACE_WEIGHTINGS)}.")
    for name, value in options.items():
        if name == "decimal_offset":
            if value not in (0, 1):
                raise UserError(f"decimal_offset is {value!r}, expected 0 (the paper) or 1 (its code).")
        elif name not in ("k", "beta"):
            raise UserError(f"unknown place weighting option {name!r}, expected k, beta or decimal_offset.")
        elif not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < float("inf"):
            raise UserError(f"place weighting option {name} is {value!r}, expected a number above 0.")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
