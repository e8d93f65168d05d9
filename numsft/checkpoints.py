"""The checkpoints of an output folder: writing one so that a kill cannot harm the others, and clearing them.

A checkpoint is written between `begin`, which puts the marker `_unfinished` into its folder, and `commit`,
which takes it out after every rank has written its part and the files are on the disk. Only then are older
checkpoints deleted. `numsft.soundness` says which are whole.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Collection
from pathlib import Path

from numsft.soundness import UNFINISHED, damage

_NAME = re.compile(r"checkpoint-(\d+)")


def checkpoints(folder: str | Path) -> list[Path]:
    """Return the `checkpoint-N` folders in `folder`, newest first."""
    folder = Path(folder)
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if _NAME.fullmatch(p.name) and p.is_dir()), key=_step)[::-1]


def newest_sound(folder: str | Path, *, weights_only: bool = False) -> tuple[Path | None, list[str]]:
    """Return the newest sound checkpoint (or None), and a line for each newer, damaged one.

    Args:
        folder: The output folder.
        weights_only: Whether checkpoints without optimiser, scheduler and random state are expected.
    """
    skipped: list[str] = []
    for checkpoint in checkpoints(folder):
        reason = damage(checkpoint, weights_only=weights_only)
        if reason is None:
            return checkpoint, skipped
        skipped.append(f"{checkpoint} is damaged ({reason}): skipped")
    return None, skipped


def begin(checkpoint: str | Path) -> None:
    """Make the checkpoint's folder anew, marked as unfinished; an earlier one of that name is deleted.

    Its old files would otherwise mix with the new ones where the run is killed half-way.
    """
    checkpoint = Path(checkpoint)
    if checkpoint.exists():
        _delete(checkpoint)
    checkpoint.mkdir(parents=True)
    (checkpoint / UNFINISHED).touch()


def commit(checkpoint: str | Path, *, limit: int | None = None, keep: Collection[str | Path] = ()) -> None:
    """Take the marker out of a checkpoint that is all written, then delete the oldest beyond `limit`.

    Args:
        checkpoint: The checkpoint just written.
        limit: How many checkpoints may stay, None or 0 for all.
        keep: Others that stay whatever their age, such as the best one.
    """
    checkpoint = Path(checkpoint)
    _to_disk(checkpoint)  # a machine that loses power must not lose a checkpoint that replaced another
    (checkpoint / UNFINISHED).unlink()
    _to_disk_one(checkpoint)
    if not limit or limit < 1:
        return
    kept = {checkpoint.resolve(), *(Path(path).resolve() for path in keep)}
    others = [path for path in checkpoints(checkpoint.parent) if path.resolve() not in kept]
    # Of a run that goes on from before the end, later checkpoints are left-overs.
    others.sort(key=lambda path: (_step(path) < _step(checkpoint), _step(path)), reverse=True)
    for path in others[max(0, limit - len(kept)) :]:
        _delete(path)


def clear(folder: str | Path) -> None:
    """Delete the checkpoints and `resolved.yaml` in `folder`, and nothing else."""
    for checkpoint in checkpoints(folder):
        _delete(checkpoint)
    (Path(folder) / "resolved.yaml").unlink(missing_ok=True)


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def _delete(checkpoint: Path) -> None:
    with contextlib.suppress(OSError):  # no room for the marker: deleting makes some
        (checkpoint / UNFINISHED).touch()  # a kill half-way leaves what is seen to be none
    shutil.rmtree(checkpoint)


def _to_disk(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        if not path.is_symlink():
            _to_disk_one(path)


def _to_disk_one(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # Windows has no handle of a folder to flush
        return
    handle = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(handle)
    except OSError:
        if path.is_file():
            raise  # some network file systems refuse it for folders
    finally:
        os.close(handle)
