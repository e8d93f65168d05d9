"""The report before training: what the tokenised rows hold, and what would silently not be trained.

It reads the dataset as the trainer prepared it (`input_ids`, `labels`, packed or not) beside the rows it was
made from. A completion cut off by the length limit, a stop token that is never trained or a prompt that
tokenises differently alone are all legal, and all ruin a run without an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset

from numsft.data import prompt_key
from numsft.errors import UserError
from numsft.preflight.counts import IGNORED, NumberTokens, Totals, batches
from numsft.preflight.report import Preflight

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_SHOWN = 24  # tokens decoded on each side of the boundary


def preflight(
    prepared: Dataset,
    raw: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int | None,
    packing: str | None = None,
    truncation_mode: str = "keep_start",
    chat_template: str | None = None,
    number_tokens: NumberTokens | None = None,
    other: Dataset | None = None,
    name: str = "train",
    prefix_sample: int = 1000,
) -> Preflight:
    """Counts what a prepared split would train on.

    Every number covers all rows, read in batches straight from Arrow, except the prompt boundary: that
    tokenises prompts again, so it looks at `prefix_sample` rows spread evenly over the split and says how
    many.

    Args:
        prepared: The trainer's dataset, with `input_ids` and `labels`, and `seq_lengths` when packed.
        raw: The rows it was made from, with `prompt` and `completion`.
        tokenizer: The trainer's tokenizer.
        max_length: The length limit, None for none.
        packing: The packing strategy, `bfd`, `bfd_split` or `wrapped`; None for unpacked rows.
        truncation_mode: Which end the trainer kept.
        chat_template: The chat template that the trainer used, None for the tokenizer's.
        number_tokens: The number vocabulary's token ids, or a function from labels `[n]` to a mask `[n]`.
        other: The raw rows of the other split, to count shared prompts.
        name: What to call the split in the report.
        prefix_sample: Rows on which the prompt boundary is checked.

    Raises:
        UserError: No row trains anything; the message counts the rows for each reason.
    """
    encoder = _Encoder(tokenizer, chat_template)
    whole = packing in (None, "bfd")  # every document of the prepared data is one row
    totals = Totals(tokenizer.eos_token_id, max_length, number_tokens)
    for ids, labels, lengths in batches(prepared):
        totals.add(ids, labels, lengths)
    if packing is None:
        dropped = _removed(raw, len(raw) - len(prepared), encoder, max_length, truncation_mode)
    else:
        dropped = {_too_long(max_length): totals.masked_long} if whole and totals.masked_long else {}
    masked = totals.masked - (totals.masked_long if packing else 0)
    if whole and masked:
        dropped["no token to train"] = dropped.get("no token to train", 0) + masked
    if not totals.trainable:
        reasons = " and ".join(f"{reason} for {n} of {len(raw)} rows" for reason, n in dropped.items())
        raise UserError(
            f"no row of the {name} data is left to train on ({reasons or 'no token has a label'}); expected "
            "completions within max_length, so raise max_length or shorten the prompts"
        )
    checked, broken = _prefixes(raw, encoder, prefix_sample)
    return Preflight(
        name=name,
        raw_rows=len(raw),
        rows=totals.documents - totals.masked if whole else len(raw),
        sequences=len(prepared),
        dropped=dropped,
        tokens=totals.tokens,
        trainable_tokens=totals.trainable,
        number_tokens=totals.numbers,
        longest=totals.longest,
        truncated=totals.truncated if whole else None,
        boundary=_boundary(prepared, tokenizer),
        prefix_checked=checked,
        prefix_broken=broken,
        stop_token=str(tokenizer.eos_token),
        stop_missing=totals.stop_missing if whole else None,
        stop_repeated=totals.stop_repeated if whole else None,
        overlap=None if other is None else _overlap(raw, other),
    )


def _too_long(max_length: int | None) -> str:
    return f"prompt >= max_length ({max_length})"


class _Encoder:
    """Tokenises a prompt, or a prompt and its completion, as the trainer does."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, chat_template: str | None) -> None:
        self.tokenizer = tokenizer
        self.chat_template = chat_template

    def text(self, messages: list[dict[str, Any]], *, prompt: bool) -> str:
        return str(
            self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=prompt, chat_template=self.chat_template
            )
        )

    def ids(self, text: str | list[dict[str, Any]], *, prompt: bool) -> list[int]:
        if isinstance(text, str):
            return list(self.tokenizer(text)["input_ids"])
        # A chat template writes its own special tokens.
        return list(self.tokenizer(self.text(text, prompt=prompt), add_special_tokens=False)["input_ids"])


def _prefixes(raw: Dataset, encoder: _Encoder, sample: int) -> tuple[int, int]:
    """Rows checked, and those among them whose tokens do not begin with those of the prompt alone."""
    if not {"prompt", "completion"} <= set(raw.column_names) or not len(raw):
        return 0, 0
    rows = raw.select(np.unique(np.linspace(0, len(raw) - 1, min(sample, len(raw))).astype(int)))
    broken = 0
    for row in rows:
        start = encoder.ids(row["prompt"], prompt=True)
        whole = encoder.ids(row["prompt"] + row["completion"], prompt=False)
        broken += whole[: len(start)] != start
    return len(rows), broken


def _removed(
    raw: Dataset, missing: int, encoder: _Encoder, max_length: int | None, mode: str
) -> dict[str, int]:
    """Why the trainer dropped `missing` rows: those with too long a prompt, and the rest."""
    if missing <= 0:
        return {}
    long = 0
    if max_length is not None and mode == "keep_start" and "prompt" in raw.column_names:
        first = raw[0]["prompt"]
        # A token is at least a byte, so only prompts of that many bytes are tokenised; a template adds some.
        added = 0 if isinstance(first, str) else len(encoder.text(first, prompt=True).encode())
        for prompt in raw["prompt"]:
            size = _bytes(prompt) + added * len(prompt if added else "1") + 2
            if size >= max_length and len(encoder.ids(prompt, prompt=True)) >= max_length:
                long += 1
    long = min(long, missing)
    reasons = {_too_long(max_length): long, "no token to train": missing - long}
    return {reason: count for reason, count in reasons.items() if count}


def _bytes(prompt: str | list[dict[str, Any]]) -> int:
    if isinstance(prompt, str):
        return len(prompt.encode(errors="replace"))
    return sum(len(message["content"].encode(errors="replace")) for message in prompt)


def _boundary(prepared: Dataset, tokenizer: PreTrainedTokenizerBase) -> tuple[str, str]:
    """The text on both sides of the first trained token of the first document that has one."""
    row = prepared[0]
    ids, labels, start = row["input_ids"], np.asarray(row["labels"]), 0
    for length in row.get("seq_lengths") or [len(ids)]:
        trained = np.flatnonzero(labels[start : start + length] != IGNORED)
        if len(trained):
            first, end = start + int(trained[0]), start + length
            before, after = ids[max(start, first - _SHOWN) : first], ids[first : min(end, first + _SHOWN)]
            return str(tokenizer.decode(before)), str(tokenizer.decode(after))
        start += length
    return str(tokenizer.decode(ids[:_SHOWN])), ""


def _overlap(raw: Dataset, other: Dataset) -> int:
    """Rows of `raw` whose prompt `other` has too."""
    column = next((c for c in ("prompt", "messages", "text") if c in raw.column_names), None)
    if column is None or column not in other.column_names:
        return 0
    known = {prompt_key(prompt) for prompt in other[column]}
    return sum(prompt_key(prompt) in known for prompt in raw[column])
