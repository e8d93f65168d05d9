"""Many programs at once, results in order; nothing of them is left when this returns, however it returns."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from numsft.errors import UserError
from numsft.evaluation.sandbox.interpreter import interpreter
from numsft.evaluation.sandbox.isolation import isolation
from numsft.evaluation.sandbox.plan import Limits, Plan
from numsft.evaluation.sandbox.process import Outcome, Running, run_one


def run_programs(
    programs: Sequence[str],
    *,
    workers: int | None = None,
    wall_seconds: float = 5.0,
    cpu_seconds: float = 5.0,
    memory_mib: int = 1024,
    output_bytes: int = 65536,
    allow_no_sandbox: bool = False,
) -> list[Outcome]:
    """Runs Python programs, each at module level in a fresh, isolated interpreter.

    Args:
        programs: source texts.
        workers: how many run side by side; None = as many as this process may use cores.
        wall_seconds: time on the clock for each.
        cpu_seconds: processor time for each, rounded up to whole seconds.
        memory_mib: address space for each process, MiB.
        output_bytes: standard output kept of each; one that prints more is stopped.
        allow_no_sandbox: run them even where this machine cannot isolate them.

    Returns:
        One outcome a program, in the order given.

    Raises:
        UserError: this machine cannot isolate programs and `allow_no_sandbox` is false; a limit is not
            positive.
        RunError: the sandbox itself failed.
    """
    limits = Limits(wall_seconds, cpu_seconds, memory_mib, output_bytes)
    for name, value in vars(limits).items():
        if not value > 0:
            raise UserError(f"{name} is {value}; give a number above 0")
    if workers is not None and workers < 1:
        raise UserError(f"workers is {workers}; give at least 1")
    if not programs:
        return []
    reached = isolation()
    if reached.level == "none" and not allow_no_sandbox:
        missing = ", ".join(name for name, holds in reached.parts.items() if not holds)
        raise UserError(
            f"this machine cannot isolate model-written programs (not held: {missing}); run on Linux with "
            "user namespaces or Landlock, or accept the risk with --allow_no_sandbox"
        )
    return run_batch(programs, reached.plan, limits, workers)


def run_batch(
    programs: Sequence[str], plan: Plan, limits: Limits, workers: int | None = None
) -> list[Outcome]:
    """`run_programs` with the isolation given."""
    python = interpreter()
    running = Running()
    base = None if plan.namespaces else tempfile.mkdtemp(prefix="numsft-sandbox-")

    def one(number: int) -> Outcome:
        folder = os.path.join(base, str(number)) if base else ""
        if folder:
            os.mkdir(folder)
        try:
            return run_one(programs[number], plan, limits, python, folder, running)
        finally:
            if folder:
                shutil.rmtree(folder, ignore_errors=True)

    pool = ThreadPoolExecutor(workers or _cores(), thread_name_prefix="numsft-sandbox")
    try:
        futures = [pool.submit(one, number) for number in range(len(programs))]
        return [future.result() for future in futures]
    finally:
        running.stop_all()
        pool.shutdown(wait=True, cancel_futures=True)
        if base:
            shutil.rmtree(base, ignore_errors=True)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
