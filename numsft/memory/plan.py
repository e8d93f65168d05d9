"""What an accelerate configuration file says about processes, sharding and precision."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from numsft.errors import UserError

KINDS = ("none", "ddp", "fsdp2", "zero2", "zero3")
"""How the model's state is spread: not at all, copied, or in parts."""


@dataclass(frozen=True)
class Plan:
    """One launch: how the model's state is spread, over how many processes, and in which precision.

    Attributes:
        kind: One of `KINDS`.
        processes: GPUs of all machines together.
        mixed_precision: `no`, `bf16` or `fp16`.
        cpu: Whether the processes run without GPUs.
        checkpointing: Whether the launcher itself switches activation checkpointing on (FSDP's own).
        offload: What is kept in the machine's memory: any of `optimiser` and `parameters`.
    """

    kind: str = "none"
    processes: int = 1
    mixed_precision: str = "no"
    cpu: bool = False
    checkpointing: bool = False
    offload: tuple[str, ...] = ()


def plan_from_accelerate(path: str | Path, gpus: int | None = None) -> Plan:
    """Read an accelerate configuration file.

    Args:
        path: A YAML or JSON file, as `accelerate config` writes it.
        gpus: Number of processes instead of the file's.

    Raises:
        UserError: For a file that accelerate could not use, or a way of sharding that is not estimated.
    """
    path = Path(path)
    entries = _read(path)
    named = str(entries.get("distributed_type", "NO")).upper()
    fsdp, deepspeed = entries.get("fsdp_config") or {}, entries.get("deepspeed_config") or {}
    precision = str(entries.get("mixed_precision") or "no").lower()
    offload: tuple[str, ...] = ()
    if named == "FSDP":
        kind = "fsdp2"
        if _is_true(fsdp.get("fsdp_offload_params")):
            offload = ("optimiser", "parameters")
    elif named == "DEEPSPEED":
        stage, offload = _deepspeed(deepspeed, path)
        kind = {0: "ddp", 2: "zero2", 3: "zero3"}.get(stage, "")
        if not kind:
            raise UserError(
                f"{path}: zero_stage is {stage}, but memory is estimated for 2 and 3: use one of them"
            )
    elif named in ("NO", "MULTI_GPU", "MULTI_CPU"):
        kind = "none" if named == "NO" else "ddp"
    else:
        raise UserError(
            f"{path}: distributed_type is {named}, but memory is estimated for NO, MULTI_GPU, FSDP "
            "and DEEPSPEED: use one of accelerate_configs/"
        )
    processes = gpus if gpus is not None else entries.get("num_processes") or 1
    if not isinstance(processes, int) or processes < 1:
        raise UserError(
            f"{path}: the number of processes is {processes!r}, but should be at least 1: give --gpus"
        )
    if kind == "none" and processes > 1:
        kind = "ddp"  # accelerate starts as many copies
    if processes == 1 and kind == "ddp":
        kind = "none"
    cpu = _is_true(entries.get("use_cpu")) or named == "MULTI_CPU"
    return Plan(kind, processes, precision, cpu, _is_true(fsdp.get("fsdp_activation_checkpointing")), offload)


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        entries = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UserError(f"{path} cannot be read ({reason}): give an accelerate configuration file") from error
    except (ValueError, yaml.YAMLError) as error:
        raise UserError(f"{path} is neither YAML nor JSON: give an accelerate configuration file") from error
    if not isinstance(entries, dict) or not ("distributed_type" in entries or "num_processes" in entries):
        raise UserError(f"{path} has no distributed_type: give an accelerate configuration file")
    return entries


def _deepspeed(settings: dict[str, Any], path: Path) -> tuple[int, tuple[str, ...]]:
    """Return the ZeRO stage and what is offloaded, from accelerate's keys or from DeepSpeed's own file."""
    stage: Any = settings.get("zero_stage", 2)
    devices = {
        "optimiser": settings.get("offload_optimizer_device"),
        "parameters": settings.get("offload_param_device"),
    }
    if settings.get("deepspeed_config_file"):
        zero = _read_deepspeed(path.parent, settings["deepspeed_config_file"]).get("zero_optimization") or {}
        stage = zero.get("stage", 0)
        devices = {
            "optimiser": (zero.get("offload_optimizer") or {}).get("device"),
            "parameters": (zero.get("offload_param") or {}).get("device"),
        }
    return int(stage), tuple(
        part for part, device in devices.items() if str(device or "none").lower() != "none"
    )


def _read_deepspeed(folder: Path, name: str) -> dict[str, Any]:
    found = next((file for file in (Path(name), folder / name) if file.is_file()), Path(name))
    try:
        settings = json.loads(found.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{found} cannot be read as JSON: correct deepspeed_config_file") from error
    return settings if isinstance(settings, dict) else {}


def _is_true(value: Any) -> bool:
    return str(value).lower() in ("true", "1", "yes")
