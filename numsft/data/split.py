"""Which rows are trained on and which are held out: decided by a hash of the prompt, never by position."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset

from numsft.errors import UserError

if TYPE_CHECKING:
    from numsft.config import DataConfig

KEY = "prompt_key"


def prompt_key(prompt: str | list[dict[str, Any]]) -> int:
    """A 64-bit hash of what is asked, blind to white space; of a chat, its turns before the first answer."""
    if isinstance(prompt, str):
        text = prompt
    else:
        opening: list[str] = []
        for message in prompt:
            if message["role"] == "assistant":
                break
            opening.append(f"{message['role']}: {message['content']}")
        text = "\n".join(opening)
    digest = blake2b(" ".join(text.split()).encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def eval_rows(size: int | float, rows: int) -> int:
    """Rows that `eval_size` means: a count from 1 on, or a share below 1."""
    number = isinstance(size, (int, float)) and not isinstance(size, bool)
    if not number or not 0 <= size < float("inf") or (size > 1 and size != int(size)):
        raise UserError(f"eval_size is {size!r}; expected a number of rows (500) or a share below 1 (0.02)")
    return max(1, round(size * rows)) if 0 < size < 1 else int(size)


def keys_of(dataset: Dataset) -> np.ndarray:
    """The `prompt_key` column, `[rows]` int64."""
    return np.asarray(dataset.with_format("arrow")[KEY][:], dtype=np.int64)


def hold_out(dataset: Dataset, count: int, data: DataConfig, seed: int) -> tuple[Dataset, Dataset]:
    """Takes `count` rows out, and every other row with the prompt of one of them."""
    keys = keys_of(dataset)
    mask = np.random.default_rng(seed).integers(np.iinfo(np.int64).min, np.iinfo(np.int64).max)
    chosen = np.argsort(keys ^ mask, kind="stable")[:count]
    kept = np.flatnonzero(~np.isin(keys, keys[chosen]))
    if len(chosen) < count or not len(kept):
        key, value = ("eval_size", data.eval_size) if data.eval_size else ("before_after", data.before_after)
        raise UserError(
            f"{key} is {value}, which leaves nothing to train on of the {len(keys)} rows of "
            f"{data.dataset}; make it smaller"
        )
    return dataset.select(kept), dataset.select(np.sort(chosen))


def without(train: Dataset, pool: Dataset, data: DataConfig, notes: list[str]) -> Dataset:
    """The training rows whose prompt the held-out rows do not contain."""
    if not len(pool):
        return train
    keys = keys_of(train)
    kept = np.flatnonzero(~np.isin(keys, keys_of(pool)))
    if not len(kept):
        raise UserError(
            f"every one of the {len(keys)} training rows is also in the evaluation data; "
            f"set eval_dataset to other rows than {data.dataset}, or use eval_size"
        )
    if len(kept) < len(keys):
        notes.append(
            f"{len(keys) - len(kept)} training rows left out: their prompt is in the evaluation data"
        )
        return train.select(kept)
    return train
