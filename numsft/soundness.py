"""Whether a checkpoint is whole: every file that a resumed run reads is there and complete."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path
from typing import Any

UNFINISHED = "_unfinished"
"""Name of the file that marks a checkpoint which is still being written, or was when the run ended."""

_STATE_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".json", ".distcp")


def damage(checkpoint: str | Path, *, weights_only: bool = False) -> str | None:
    """Say what is wrong with a checkpoint, None where nothing is.

    Beside the marker of an unfinished one, sizes and checksums are looked at: a checkpoint can also be cut
    short by a full disk, a power cut or a copy.

    Args:
        checkpoint: Its folder.
        weights_only: Whether it may lack optimiser, scheduler and random state (`save_only_model`).
    """
    checkpoint = Path(checkpoint)
    if (checkpoint / UNFINISHED).exists():
        return "it was not written to its end"
    try:
        state = _read_json(checkpoint / "trainer_state.json")
    except FileNotFoundError:
        return "trainer_state.json is missing"
    except (OSError, ValueError):
        return "trainer_state.json is not JSON"
    if not isinstance(state, dict) or not isinstance(state.get("global_step"), int):
        return "trainer_state.json has no global_step"
    files = sorted(p for p in checkpoint.rglob("*") if p.is_file() and p.suffix in _STATE_SUFFIXES)
    missing = _missing(checkpoint, weights_only)
    if missing:
        return missing
    for path in files:
        reason = _damaged_file(path)
        if reason:
            return f"{path.relative_to(checkpoint)} {reason}"
    return None


def _missing(checkpoint: Path, weights_only: bool) -> str | None:
    names = {path.name for path in checkpoint.iterdir()}
    folders = [path for path in checkpoint.iterdir() if path.is_dir()]
    fsdp = [path for path in folders if path.name.startswith(("pytorch_model_fsdp", "optimizer_"))]
    deepspeed = any(path.name.startswith("global_step") for path in folders)
    weights = any(
        name.endswith((".safetensors", ".bin"))
        and name.startswith(("model", "adapter_model", "pytorch_model"))
        for name in names
    )
    if not weights and not deepspeed and not any(path.name.startswith("pytorch_model") for path in fsdp):
        return "its weights are missing"
    for index in checkpoint.glob("*.index.json"):
        try:
            shards = set(_read_json(index)["weight_map"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return f"{index.name} is not a weight map"
        absent = sorted(name for name in shards if name not in names)
        if absent:
            return f"{absent[0]} is missing"
    for folder in fsdp:
        if not (folder / ".metadata").is_file():  # written last, by one rank
            return f"{folder.name}/.metadata is missing"
    if "adapter_model.safetensors" in names and "adapter_config.json" not in names:
        return "adapter_config.json is missing"
    if weights_only:
        return None
    if deepspeed:
        return None if "latest" in names else "latest is missing"
    if not {"optimizer.pt", "optimizer.bin"} & names and not any(
        p.name.startswith("optimizer_") for p in fsdp
    ):
        return "optimizer.pt is missing"
    if "scheduler.pt" not in names:
        return "scheduler.pt is missing"
    if not any(name.startswith("rng_state") and name.endswith(".pth") for name in names):
        return "rng_state.pth is missing"
    return None


def _damaged_file(path: Path) -> str | None:
    try:
        if path.stat().st_size == 0:
            return "is empty"
        if path.suffix == ".json":
            _read_json(path)
        elif path.suffix == ".safetensors" and not _whole_safetensors(path):
            return "is cut short"
        elif path.suffix in (".pt", ".pth", ".bin") and not _whole_archive(path):
            return "is damaged"
    except ValueError:
        return "is not JSON"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


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
    except (zipfile.BadZipFile, EOFError, NotImplementedError, ValueError):
        return False
