"""What every benchmark measures with: fresh processes, interleaved rounds, peak memory, medians with spread.

A contender is one process: what ran before it cannot warm its caches or leave memory behind. Rounds are
interleaved, so that a machine that slows down for a while slows all contenders, and ratios hold where
absolute times do not. The processor's time stands beside the clock's: where it falls short of threads times
seconds, something else was running.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib.metadata
import json
import multiprocessing
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback

MIB = 2**20


class PeakMemory:
    """Peak memory above the state at construction: resident on a CPU, allocated by torch on CUDA."""

    def __init__(self, device: torch.device) -> None:
        """Start the watch.

        Raises:
            RuntimeError: On a CPU without Linux's `/proc`.
        """
        self.device = device
        gc.collect()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            self.before = torch.cuda.memory_allocated(device)
            return
        try:
            # Freed memory that malloc keeps would be handed out again without showing in the peak.
            ctypes.CDLL(None).malloc_trim(0)
            Path("/proc/self/clear_refs").write_text("5")
        except (OSError, AttributeError) as error:
            raise RuntimeError("Peak memory on a CPU needs Linux's /proc: run this on Linux.") from error
        self.before = _proc_status("VmRSS")

    def mib(self) -> float:
        """Return the peak so far, MiB above the start."""
        return self.total_mib() - self.before / MIB

    def total_mib(self) -> float:
        """Return the peak so far, MiB in all: of the process on a CPU, of torch's tensors on CUDA."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / MIB
        return _proc_status("VmHWM") / MIB


def _proc_status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {name}.")


class Stopwatch:
    """What each step took, one `{"seconds", "cpu_seconds", "peak_mib", "total_mib"}` a step in `steps`."""

    def __init__(self, device: torch.device) -> None:
        """Measure on `device`."""
        self.device = device
        self.steps: list[dict[str, float]] = []

    def start(self) -> None:
        """Begin a step."""
        self._peak = PeakMemory(self.device)
        self._synchronize()
        self._began = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        """End a step."""
        self._synchronize()
        wall, cpu = time.perf_counter() - self._began[0], time.process_time() - self._began[1]
        peak = {"peak_mib": self._peak.mib(), "total_mib": self._peak.total_mib()}
        self.steps.append({"seconds": wall, "cpu_seconds": cpu} | peak)

    def result(self) -> dict[str, float]:
        """Return the first step's peak, with no gradient allocated yet, and the later steps' median time.

        Where there is only one step, its time: at many seconds a step, what a first one sets up is little.
        """
        timed = self.steps[1:] or self.steps
        return {
            "seconds": statistics.median(step["seconds"] for step in timed),
            "cpu_seconds": statistics.median(step["cpu_seconds"] for step in timed),
            "peak_mib": self.steps[0]["peak_mib"],
        }

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class _StopBeforeOptimizer(TrainerCallback):
    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        self.watch.stop()


def time_trainer(trainer: Trainer) -> Stopwatch:
    """Train; return the watch over each step, from fetching its batch to its last gradient."""
    watch = Stopwatch(trainer.args.device)
    fetch = trainer.get_batch_samples

    def fetch_and_start(*args: Any, **kwargs: Any) -> Any:
        watch.start()
        return fetch(*args, **kwargs)

    trainer.get_batch_samples = fetch_and_start
    trainer.add_callback(_StopBeforeOptimizer(watch))
    trainer.train()
    return watch


class _StopAfterOptimizer(TrainerCallback):
    def __init__(self, watch: Stopwatch, turns: Connection) -> None:
        self.watch = watch
        self.turns = turns

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.watch.stop()
        self.turns.send(self.watch.steps[-1])


def train_by_turns(trainer: Trainer, turns: Connection) -> None:
    """Train; wait for a word on `turns` before each step, and answer with what the whole step took."""
    watch = Stopwatch(trainer.args.device)
    fetch = trainer.get_batch_samples

    def wait_and_fetch(*args: Any, **kwargs: Any) -> Any:
        turns.recv()
        watch.start()
        return fetch(*args, **kwargs)

    trainer.get_batch_samples = wait_and_fetch
    trainer.add_callback(_StopAfterOptimizer(watch, turns))
    trainer.train()


def take_turns(
    names: Sequence[str], steps: int, work: Callable[..., None], *arguments: Any
) -> dict[str, list[dict[str, float]]]:
    """Start a fresh process a contender, all alive at once, and let them step in turn, one at a time.

    The steps that are compared then lie seconds apart, and a model is loaded once a contender, not once a
    step. Every second turn goes backwards.

    Args:
        names: The contenders.
        steps: Steps of each; the first, which sets up, is not returned.
        work: Called in each process as `work(name, turns, *arguments)`; ends in `train_by_turns`.
        arguments: What `work` takes beside, picklable.

    Raises:
        RuntimeError: If a contender's process ended early.
    """
    context = multiprocessing.get_context("spawn")
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    processes, turns = [], {}
    try:
        for name in names:
            turns[name], theirs = context.Pipe()
            processes.append(context.Process(target=work, args=(name, theirs, *arguments), daemon=True))
            processes[-1].start()
            theirs.close()  # so that a process that dies is the pipe's end, not silence
        for index in range(steps):
            for name in names if index % 2 == 0 else reversed(names):
                try:
                    turns[name].send("step")
                    figure = turns[name].recv()
                except (EOFError, OSError):
                    raise RuntimeError(
                        f"The process of {name} ended early: its error stands above."
                    ) from None
                if index:
                    figures[name].append(figure)
                print(f"step {index}  {name:24} {figure['seconds']:.3f} s", file=sys.stderr, flush=True)
    finally:
        for process in processes:
            process.terminate()
            process.join()
    return figures


def run_fresh(script: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Run `script` with `arguments` and `--json FILE` in a process of its own; return what it wrote there.

    Raises:
        RuntimeError: If it failed, with the end of what it said.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, script, *arguments, "--json", str(answer)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
        return json.loads(answer.read_text())


def interleave(
    names: Sequence[str], runs: int, run: Callable[[str], dict[str, float]]
) -> Iterator[dict[str, list[dict[str, float]]]]:
    """Run every contender once a round, every second round backwards; yield all figures after each round."""
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for index in range(runs):
        for name in names if index % 2 == 0 else reversed(names):
            figure = run(name)
            figures[name].append(figure)
            said = ", ".join(f"{key} {value:.4g}" for key, value in figure.items())
            print(f"round {index + 1}/{runs}  {name:24} {said}", file=sys.stderr, flush=True)
        yield figures


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, smallest and largest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def command() -> str:
    """Return the command line, without the file that it writes: what to type to measure this again."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--output")
    _, others = parser.parse_known_args()
    return shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *others])


def environment(device: torch.device, threads: int) -> dict[str, Any]:
    """Return what the figures depend on: versions, processor, threads. No host or user name."""
    packages = ("torch", "trl", "transformers", "accelerate", "peft", "liger-kernel")
    versions = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "python": platform.python_version(),
        "versions": versions,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "threads": threads,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()
