"""The checkpoints of an output folder: which is the newest sound one, and clearing them away."""

from __future__ import annotations

import json
import re
import shutil
import struct
import zipfile
from pathlib import Path

_NAME = re.compile(r"checkpoint-(\d+)")


def checkpoints(folder: str | Path) -> list[Path]:
    """Return the `checkpoint-N` folders in `folder`, newest first."""
    folder = Path(folder)
    if not folder.is_dir():
        return []
    found = [(int(m[1]), p) for p in folder.iterdir() if (m := _NAME.fullmatch(p.name)) and p.is_dir()]
    return [path for _, path in sorted(found, reverse=True)]


def damage(checkpoint: str | Path) -> str | None:
    """Say what is wrong with a checkpoint, None where nothing is: every file is there and complete.

    A run killed while it was writing leaves a folder without `trainer_state.json`, which is written last, or
    a file cut short.
    """
    checkpoint = Path(checkpoint)
    try:
        state = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
        if not isinstance(state, dict) or "global_step" not in state:
            return "trainer_state.json has no global_step"
    except FileNotFoundError:
        return "trainer_state.json is missing"
    except ValueError:
        return "trainer_state.json is not JSON"
    weights = [p for p in checkpoint.iterdir() if p.suffix in (".safetensors", ".bin")]
    weights += [
        p for p in checkpoint.iterdir() if p.is_dir() and p.name.startswith(("pytorch_model", "global_step"))
    ]
    if not any(p.is_dir() or p.name.startswith(("model", "adapter_model", "pytorch_model")) for p in weights):
        return "its weights are missing"
    for index in checkpoint.glob("*.index.json"):
        try:
            shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, AttributeError):
            return f"{index.name} is not a weight map"
        absent = sorted(name for name in shards if not (checkpoint / name).is_file())
        if absent:
            return f"{absent[0]} is missing"
    for path in sorted(checkpoint.iterdir()):
        if path.suffix == ".safetensors" and not _whole_safetensors(path):
            return f"{path.name} is cut short"
        if path.suffix in (".pt", ".pth", ".bin") and not _whole_archive(path):
            return f"{path.name} is damaged"
    return None


def newest_sound(folder: str | Path) -> tuple[Path | None, list[str]]:
    """Return the newest sound checkpoint (or None), and a line for each newer, damaged one."""
    skipped: list[str] = []
    for checkpoint in checkpoints(folder):
        reason = damage(checkpoint)
        if reason is None:
            return checkpoint, skipped
        skipped.append(f"{checkpoint} is damaged ({reason}): skipped")
    return None, skipped


def clear(folder: str | Path) -> None:
    """Delete the checkpoints and `resolved.yaml` in `folder`, and nothing else."""
    for checkpoint in checkpoints(folder):
        shutil.rmtree(checkpoint)
    (Path(folder) / "resolved.yaml").unlink(missing_ok=True)


def _whole_safetensors(path: Path) -> bool:
    """Whether the file is as long as its header says: eight bytes of length, the header, the tensors."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        if len(start) < 8:
            return False
        (length,) = struct.unpack("<Q", start)
        if length > size - 8:
            return False
        try:
            header = json.loads(file.read(length))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, AttributeError):
            return False
    return bool(size == 8 + length + max(ends, default=0))


def _whole_archive(path: Path) -> bool:
    """Whether a file that `torch.save` wrote (a zip) can be read to its end with the right checksums."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except (zipfile.BadZipFile, EOFError, OSError):
        return False
