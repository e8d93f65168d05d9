"""Whether a run fits on its GPUs, and the nearest one that does."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from numsft.errors import UserError
from numsft.memory.estimate import MemoryEstimate, estimate
from numsft.memory.setup import Setup
from numsft.memory.shape import Lora, ModelShape, lora_targets

GIB = 1 << 30
MARGIN = 0.06
"""Share of a GPU left to the CUDA context, cuBLAS and NCCL buffers (1 to 2 GiB together) and to
fragmentation."""

_MOST_GPUS = 64
_LORA = Lora(16, lora_targets("all-linear"), 0.05)
_COSTS = {"checkpointing": 1, "sync": 1, "halving": 2, "sharding": 8, "doubling": 16, "lora": 200}
"""What counts as near: first what changes no result, then what needs other launch settings, then more GPUs,
and another method of training last.
"""


@dataclass(frozen=True)
class Fit:
    """A run that fits, and the keys that make it out of another."""

    setup: Setup
    changes: tuple[str, ...]
    total: int


def usable_bytes(gpu_memory: float) -> float:
    """Return what a run may use of a GPU of `gpu_memory` GiB (an A100-80GB has 79.2)."""
    return gpu_memory * GIB * (1 - MARGIN)


def check_fits(needed: MemoryEstimate, gpu_memory: float = 80.0) -> None:
    """Raise where a run needs more than a GPU has.

    Args:
        needed: The estimate.
        gpu_memory: Memory of one GPU, in GiB.

    Raises:
        UserError: With the overrun and the nearest setting that fits.
    """
    usable = usable_bytes(gpu_memory)
    if needed.total <= usable:
        return
    found = nearest_fit(needed.shape, needed.setup, gpu_memory)
    problem = (
        f"{describe(needed.setup)} needs {gib(needed.total)} GiB a GPU, {gib(needed.total - usable)} more "
        f"than the {gib(usable)} that a margin of {MARGIN:.0%} leaves of {gpu_memory:g}: "
    )
    if not found:
        raise UserError(
            problem
            + f"no smaller batch, sharding over up to {_MOST_GPUS} GPUs or LoRA makes it fit, so shorten "
            "max_length or take a smaller model"
        )
    first, *others = found
    text = f"the nearest setting that fits is {', '.join(first.changes)} ({gib(first.total)} GiB)"
    for fit in others:
        text += f"; without more GPUs it is {', '.join(fit.changes)} ({gib(fit.total)} GiB)"
    raise UserError(problem + text)


def nearest_fit(shape: ModelShape, setup: Setup, gpu_memory: float = 80.0) -> list[Fit]:
    """Return the nearest run that fits and, where it takes more GPUs, also the nearest that does not.

    The rows of an optimiser step stay the same: a smaller batch or fewer GPUs take more accumulation.
    """
    usable = usable_bytes(gpu_memory)
    candidates = sorted(_candidates(setup), key=lambda item: item[0])
    found: list[Fit] = []
    for _, candidate in candidates:
        if found and candidate.gpus > setup.gpus:
            continue
        total = estimate(shape, candidate).total
        if total <= usable:
            found.append(Fit(candidate, changes(setup, candidate), total))
            if candidate.gpus <= setup.gpus:
                break
    return found


def changes(old: Setup, new: Setup) -> tuple[str, ...]:
    """Return what to set, as keys of a recipe and flags of the command line."""
    texts = []
    if new.checkpointing != old.checkpointing:
        texts.append("`activation_checkpointing: true`")
    if new.lora is not None and old.lora is None:
        texts.append("`use_peft: true` with `lora_target_modules: all-linear`")
    if new.batch != old.batch:
        texts.append(f"`per_device_train_batch_size: {new.batch}`")
    if new.accumulation != old.accumulation:
        texts.append(f"`gradient_accumulation_steps: {new.accumulation}`")
    if new.sync_each_batch != old.sync_each_batch:
        texts.append("`accelerator_config: {gradient_accumulation_kwargs: {sync_each_batch: true}}`")
    if new.kind != old.kind:
        texts.append(f"`accelerate_configs/{new.kind}.yaml`")
    if new.gpus != old.gpus:
        texts.append(f"{new.gpus} GPUs")
    return tuple(texts)


def describe(setup: Setup) -> str:
    """Return a run in a few words."""
    method = "Full fine-tuning" if setup.lora is None else "LoRA" if setup.quantised is None else "QLoRA"
    where = f"{setup.gpus} GPU{'s' if setup.gpus > 1 else ''}" if setup.device == "cuda" else "the CPU"
    kind = "" if setup.kind == "none" else f"{setup.kind} on "
    batch = f"{setup.batch} x {setup.length} tokens"
    kept = "with" if setup.checkpointing else "without"
    return f"{method}, {kind}{where}, {batch}, {kept} activation checkpointing,"


def gib(size: float) -> str:
    """Return a number of bytes in GiB, such as `12.3`."""
    return f"{size / GIB:.1f}"


def _candidates(setup: Setup) -> Iterator[tuple[float, Setup]]:
    """Yield every run that differs in something, with how far it is."""
    batches = [setup.batch >> halving for halving in range(setup.batch.bit_length())]
    checkpointing = [False, True] if not setup.checkpointing else [True]
    methods = [setup.lora] if setup.lora is not None else [None, _LORA]
    rows = setup.batch * setup.accumulation * setup.gpus
    places = list(_places(setup))
    for (away, kind, gpus), batch, kept, lora in itertools.product(places, batches, checkpointing, methods):
        accumulation = max(1, math.ceil(rows / (batch * gpus)))
        if rows >= batch * gpus and rows % (batch * gpus):
            continue
        moved = dataclasses.replace(
            setup, kind=kind, gpus=gpus, batch=batch, accumulation=accumulation, checkpointing=kept, lora=lora
        )
        cost = away + _COSTS["halving"] * math.log2(setup.batch / batch)
        cost += _COSTS["checkpointing"] * (kept != setup.checkpointing)
        cost += _COSTS["lora"] * (lora is not setup.lora)
        yield cost, moved
        if kind == "fsdp2" and accumulation > 1 and not setup.sync_each_batch:
            yield cost + _COSTS["sync"], dataclasses.replace(moved, sync_each_batch=True)


def _places(setup: Setup) -> Iterator[tuple[float, str, int]]:
    """Yield the kinds of sharding and numbers of GPUs to try, with how far each is."""
    yield 0, setup.kind, setup.gpus
    kind = {"none": "fsdp2", "ddp": "fsdp2", "zero2": "zero3"}.get(setup.kind, setup.kind)
    if setup.device != "cuda":
        return
    gpus = setup.gpus
    while gpus <= _MOST_GPUS:
        if gpus > 1 and (kind, gpus) != (setup.kind, setup.gpus):
            far = _COSTS["sharding"] * (kind != setup.kind)
            yield far + _COSTS["doubling"] * math.log2(gpus / setup.gpus), kind, gpus
        gpus *= 2
