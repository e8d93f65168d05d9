"""Held-out items generated before and after training: are the numbers right, and how far off are they?"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from numsft.data import HeldOut, last_number
from numsft.evaluation.nupa import exact_match, extract_answer


@dataclass(frozen=True)
class Score:
    """How a model did on the held-out items.

    Attributes:
        items: How many there were.
        exact: Share whose number is exactly the gold one.
        log_mae: Mean of |L(prediction) - L(gold)| with L(x) = sign(x) log10(1 + |x|) clipped at 10, NTL's
            log-MAE (arXiv 2411.02083); an answer without a number counts as 0.
        answered: Share of answers with a number in them.
        texts: What the model wrote, item by item.
        right: Whether each item's number is exactly the gold one.
    """

    items: int
    exact: float
    log_mae: float
    answered: float
    texts: tuple[str, ...] = ()
    right: tuple[bool, ...] = ()


def score(texts: Sequence[str], golds: Sequence[str], *, first: bool) -> Score:
    """Score generated texts.

    Args:
        texts: What the model wrote.
        golds: The right numbers, as text.
        first: Whether the answer is the text's first number (number tasks) or its last (worked solutions).
    """
    found = [extract_answer(text) if first else (last_number(text) or "") for text in texts]
    right = [_same(answer, gold, first=first) for answer, gold in zip(found, golds, strict=True)]
    errors = [abs(_log(answer) - _log(gold)) for answer, gold in zip(found, golds, strict=True)]
    n = max(len(texts), 1)
    return Score(
        len(texts), sum(right) / n, sum(errors) / n, sum(map(bool, found)) / n, tuple(texts), tuple(right)
    )


def generate(
    model: Any,
    tokenizer: Any,
    items: Sequence[HeldOut],
    *,
    max_new_tokens: int,
    add_special_tokens: bool = True,
    batch_size: int = 16,
) -> list[str]:
    """Continue every item's prompt greedily; prompts of similar length go together, padded on the left.

    Args:
        model: A causal language model, adapted or not, on its device.
        tokenizer: Its tokenizer; the padding side is restored.
        items: Prompts and golds.
        add_special_tokens: As in training: True for text, False for prompts that a chat template wrote.
        max_new_tokens: Where an answer is cut off if it has not stopped.
        batch_size: Prompts at a time.
    """
    was_training = model.training
    model.eval()
    order = sorted(range(len(items)), key=lambda i: len(items[i].prompt))
    texts = [""] * len(items)
    side = tokenizer.padding_side
    tokenizer.padding_side = "left"
    try:
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            inputs = tokenizer(
                [items[i].prompt for i in chosen],
                return_tensors="pt",
                padding=True,
                add_special_tokens=add_special_tokens,
            ).to(model.device)
            with torch.no_grad():
                output = model.generate(
                    input_ids=inputs["input_ids"],
                    attention_mask=inputs["attention_mask"],
                    max_new_tokens=max_new_tokens,
                    do_sample=False,
                    temperature=None,
                    top_p=None,
                    top_k=None,
                    pad_token_id=tokenizer.pad_token_id,
                    eos_token_id=tokenizer.eos_token_id,
                )
            new = output[:, inputs["input_ids"].shape[1] :]
            for i, text in zip(chosen, tokenizer.batch_decode(new, skip_special_tokens=True), strict=True):
                texts[i] = text
    finally:
        tokenizer.padding_side = side
        model.train(was_training)
    return texts


def longest_answer(tokenizer: Any, items: Sequence[HeldOut], *, first: bool) -> int:
    """Return how many new tokens an answer may take: twice the longest gold, or 256 for worked solutions."""
    if not first:
        return 256
    golds = tokenizer([item.gold for item in items], add_special_tokens=False)["input_ids"]
    return 2 * max(map(len, golds)) + 2


def write_items(path: Path, items: Sequence[HeldOut], before: Score, after: Score, *, first: bool) -> None:
    """Write the items, one JSON object a line: prompt, gold, both texts, whether the last is right.

    `first` says which number of a text is its answer, the first or the last: enough to score them anew.
    """
    lines = [
        json.dumps(
            {
                "prompt": item.prompt,
                "gold": item.gold,
                "before": before.texts[index],
                "after": after.texts[index],
                "correct": after.right[index],
                "first": first,
            },
            ensure_ascii=False,
        )
        for index, item in enumerate(items)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def table(before: Score, after: Score) -> str:
    """Return the table that a run ends with, Markdown."""
    rows = [
        (f"held-out items ({before.items})", "before", "after"),
        ("exact match", f"{before.exact:.1%}", f"{after.exact:.1%}"),
        ("log-MAE", f"{before.log_mae:.3f}", f"{after.log_mae:.3f}"),
        ("answered", f"{before.answered:.1%}", f"{after.answered:.1%}"),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [f"{a:<{widths[0]}} | {b:>{widths[1]}} | {c:>{widths[2]}}" for a, b, c in rows]
    lines.insert(1, f"{'-' * widths[0]} | {'-' * (widths[1] - 1)}: | {'-' * (widths[2] - 1)}:")
    return "\n".join(lines)


def _same(answer: str, gold: str, *, first: bool) -> bool:
    if first or not answer:
        return exact_match(answer, gold)
    return float(answer) == float(gold)


def _log(text: str) -> float:
    """sign(x) log10(1 + |x|), at most 10; 0 for what is not a number."""
    numerator, _, denominator = text.replace(",", "").partition("/")
    try:
        value = float(numerator) / float(denominator or 1)
    except (ValueError, ZeroDivisionError):
        return 0.0
    return math.copysign(min(math.log10(1 + abs(value)), 10.0), value)
