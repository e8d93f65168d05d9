"""Run what a study lacks: one process a run, each of which may be killed and started again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from numsft.checkpoints import checkpoints
from numsft.compare.study import Study
from numsft.errors import RunError, UserError

DONE = "done"
"""File in a run's folder once it is finished, empty."""


@dataclass(frozen=True)
class Run:
    """One objective with one seed, and the folder it writes to."""

    objective: str
    seed: int
    folder: Path

    @property
    def recipe(self) -> Path:
        """The run's recipe file, beside its folder."""
        return self.folder.with_suffix(".yaml")

    @property
    def finished(self) -> bool:
        """Whether its results are there."""
        return (self.folder / DONE).exists()


def runs_of(study: Study, output_dir: Path) -> list[Run]:
    """Return the runs of a study; all objectives of a seed before the next seed."""
    return [
        Run(name, seed, output_dir / "runs" / name / f"seed-{seed}")
        for seed in study.seeds
        for name in study.objectives
    ]


def run_missing(study: Study, output_dir: Path, jobs: int = 1) -> int:
    """Run every run that is not finished yet, `jobs` at a time; a run that was cut short goes on.

    Args:
        study: The study.
        output_dir: Where its runs are, `runs/OBJECTIVE/seed-N`.
        jobs: Processes at a time; they share the processor's cores.

    Returns:
        How many were run.

    Raises:
        UserError: If a run is there that was made with other settings, or a recipe is refused.
        RunError: If a run failed; the others are finished first.
    """
    if jobs < 1:
        raise UserError(f"jobs is {jobs}; expected 1 or more")
    missing = []
    for run in runs_of(study, output_dir):
        wanted = study.recipe(run.objective, run.seed, run.folder)
        if run.recipe.exists() and run.recipe.read_text(encoding="utf-8") != wanted:
            raise UserError(
                f"{run.folder} was made with other settings than {study.path} has now: remove that folder "
                f"and {run.recipe.name} beside it, or name another --output_dir"
            )
        if not run.finished:
            run.folder.mkdir(parents=True, exist_ok=True)
            run.recipe.write_text(wanted, encoding="utf-8")
            missing.append(run)
    failed: list[str] = []
    running: dict[Run, subprocess.Popen[bytes]] = {}
    waiting: Iterator[Run] = iter(missing)
    try:
        while True:
            while len(running) < jobs and (new := next(waiting, None)) is not None:
                _say(f"{new.objective}, seed {new.seed}: started")
                running[new] = _start(new, jobs)
            if not running:
                break
            for run, process in list(running.items()):
                if process.poll() is not None:
                    del running[run]
                    if process.returncode == 0:
                        (run.folder / DONE).touch()
                        _say(f"{run.objective}, seed {run.seed}: finished")
                    else:
                        failed.append(f"{run.objective} (seed {run.seed})")
                        _say(f"{run.objective}, seed {run.seed}: failed, see {_log_of(run)}")
            time.sleep(0.2)
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait()
    if failed:
        raise RunError(
            f"{len(failed)} of {len(missing)} runs failed, the first {failed[0]}: its log is beside its "
            "folder; mend it and run the same command again"
        )
    return len(missing)


def _log_of(run: Run) -> Path:
    return run.folder.with_suffix(".log")


def _start(run: Run, jobs: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "numsft.run", str(run.recipe)]
    if checkpoints(str(run.folder)):
        command += ["--resume_from_checkpoint", "true"]
    environment = dict(os.environ)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    environment.setdefault("OMP_NUM_THREADS", str(max(1, cores // jobs)))
    with _log_of(run).open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
