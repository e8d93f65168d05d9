"""What a run stumbled over, and what is left of it: rows, full disks, the last good checkpoint."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from numsft.checkpoints import newest_sound
from numsft.errors import RunError, UserError

_NO_ROOM = {
    errno.ENOSPC: "no space is left on the disk",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would be larger than allowed here",
}


def last_good(output_dir: str | Path) -> str:
    """Say which checkpoint a broken-off run can be continued from, and how."""
    found, _ = newest_sound(output_dir)
    found = found or newest_sound(output_dir, weights_only=True)[0]
    if found is None:
        return f"{output_dir} holds no complete checkpoint"
    return f"{found} is complete: continue from it with --resume_from_checkpoint true"


def no_room(error: BaseException | None, folder: str | Path = ".") -> str | None:
    """Say why something could not be written for want of room, None where that was not the reason.

    safetensors and torch report a failed write in exceptions of their own; torch without its reason.

    Args:
        error: What was raised; its causes are looked at too.
        folder: Where it was written to.
    """
    seen: set[int] = set()  # an exception raised again can be its own cause's cause
    while error is not None and id(error) not in seen and not isinstance(error, UserError):
        seen.add(id(error))
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            return _NO_ROOM[error.errno]
        text = str(error)
        for number, reason in _NO_ROOM.items():
            if f"os error {number})" in text:  # the form of safetensors
                return reason
        if isinstance(error, RuntimeError) and (
            "PytorchStreamWriter failed" in text or "inline_container" in text
        ):
            free = shutil.disk_usage(_existing(Path(folder))).free
            return _NO_ROOM[errno.ENOSPC if free < 2**20 else errno.EFBIG]
        error = error.__cause__ or error.__context__
    return None


@contextmanager
def writing(what: str | Path, output_dir: str | Path) -> Iterator[None]:
    """Turn a write that fails for want of room into a `RunError` that names what is left.

    Args:
        what: What is being written, for the message.
        output_dir: The run's folder.
    """
    try:
        yield
    except RunError:
        raise
    except Exception as error:  # safetensors' own has no parent but this
        reason = no_room(error, output_dir)
        if reason is None:
            raise
        raise RunError(
            f"{what} could not be written, {reason}: make room; {last_good(output_dir)}."
        ) from error


def find_rows(dataset: Any, inputs: dict[str, Any]) -> list[int]:
    """Return the indices of the prepared rows that a micro-batch was made of.

    Looked up by their tokens, so that nothing has to be carried along while all goes well. Equal rows are all
    returned.

    Args:
        dataset: The prepared training data, with `input_ids`; a streamed one gives no answer.
        inputs: The micro-batch: padded rows with an `attention_mask`, or one row of packed documents.
    """
    if not isinstance(dataset, Dataset):
        return []
    rows = inputs["input_ids"].cpu().numpy().astype(np.int64)
    if inputs.get("attention_mask") is not None:
        mask = inputs["attention_mask"].cpu().numpy().astype(bool)
        wanted = {row[keep].tobytes() for row, keep in zip(rows, mask, strict=True)}
        return [i for i, ids in enumerate(_token_bytes(dataset)) if ids in wanted]
    packed = rows.tobytes()
    found = ((i, packed.find(ids)) for i, ids in enumerate(_token_bytes(dataset)))
    return [i for i, at in found if at >= 0 and at % rows.itemsize == 0]


def rows_text(rows: list[int]) -> str:
    """Return row numbers as a message shows them, the first eight of many."""
    if not rows:
        return "rows that cannot be told"
    return "rows " + ", ".join(map(str, rows[:8])) + (", ..." if len(rows) > 8 else "")


def _existing(path: Path) -> Path:
    return next(folder for folder in [path.absolute(), *path.absolute().parents] if folder.exists())


def _token_bytes(dataset: Dataset) -> Any:
    for batch in dataset.select_columns(["input_ids"]).iter(batch_size=1000):
        for ids in batch["input_ids"]:
            yield np.asarray(ids, dtype=np.int64).tobytes()
