"""Ends a training run that a signal has asked to end: with a checkpoint, between two optimiser steps."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from transformers import TrainerCallback
from transformers.trainer_utils import SaveStrategy

from numsft.faults import last_good
from numsft.stopping import Stopped, StopSignals


class StopCallback(TrainerCallback):
    """Saves at the end of the step in which a signal came to any rank, then raises `Stopped` on all."""

    def __init__(self, signals: StopSignals) -> None:
        """Listen to `signals`."""
        self.signals = signals
        self.stopping = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Agree on whether this step is the last one."""
        if not _on_any_rank(self.signals.received is not None, args.device):
            return
        self.stopping = True
        self.signals.settle()
        self.signals.received = self.signals.received or "a signal to another process"
        if args.save_strategy == SaveStrategy.NO:
            raise Stopped(f"{self._what(state)} and nothing saved, since save_strategy is no.")
        # What belongs to the end of an epoch (an evaluation, a line of the log) comes first.
        control.should_save = not float(state.epoch).is_integer()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save, where the last step ends an epoch."""
        control.should_save = control.should_save or self.stopping

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the run once its state is on the disk."""
        if self.stopping:
            good = last_good(args.output_dir) if state.is_world_process_zero else ""
            raise Stopped(f"{self._what(state)}; {good}.")

    def _what(self, state: Any) -> str:
        return f"Stopped by {self.signals.received} after optimiser step {state.global_step}"


def _on_any_rank(flag: bool, device: torch.device) -> bool:
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return flag
    shared = torch.tensor(int(flag), device=device)
    dist.all_reduce(shared, op=dist.ReduceOp.MAX)
    return bool(shared.item())
