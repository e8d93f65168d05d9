"""Trains through `numsft.run`, killed again and again, each run in a fork so that nothing is imported twice.

Run by `test_kills.py`: `killed_runs.py SETTINGS.json` prints a JSON report. A fork notes each micro-batch
(step, rows) in `order.txt` of its folder; the parent sends SIGKILL, or the fork kills itself half-way through
a chosen write of a checkpoint.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import safetensors.torch
import torch
from transformers import TrainerState

import numsft.trainer
from numsft import checkpoints
from numsft.run import main
from numsft.soundness import UNFINISHED

torch.set_num_threads(1)


def run(arguments: list[str], folder: Path, *, die_at: int | None = None, kill: tuple | None = None) -> int:
    """Run the command in a fork; return its status, -9 where it was killed.

    Args:
        arguments: The command line.
        folder: Where the fork writes what it notes.
        die_at: The write of a checkpoint in which the fork kills itself.
        kill: After how many micro-batches of its own, and how many seconds more, it is killed from outside.
    """
    order = folder / "order.txt"
    if order.exists():
        order.rename(folder / f"order-{len(list(folder.glob('order-*')))}.txt")
    pid = os.fork()
    if pid == 0:
        with (folder / "log.txt").open("a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        note_micro_batches(folder / "order.txt")
        count_writes(folder / "writes.txt", die_at)
        os._exit(main(arguments))
    if kill is not None:
        micro_batches, seconds = kill
        while count_lines(order) < micro_batches:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.003)
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def count_lines(file: Path) -> int:
    return file.read_text().count("\n") if file.exists() else 0


def note_micro_batches(file: Path) -> None:
    trainer = numsft.trainer.NumSFTTrainer
    step = trainer.training_step

    def noted(self, model, inputs, *args, **kwargs):
        rows = hashlib.sha256(inputs["input_ids"].numpy().tobytes()).hexdigest()[:12]
        with file.open("a") as out:
            out.write(f"{self.state.global_step} {rows}\n")
        time.sleep(0.02)  # a step of the tiny model is over before a kill could hit it
        return step(self, model, inputs, *args, **kwargs)

    trainer.training_step = noted


def count_writes(file: Path, die_at: int | None) -> None:
    """Count what is written into checkpoints; kill this process half-way through write number `die_at`."""
    seen = 0

    def dies(name: str, target: Path) -> bool:
        nonlocal seen
        if "checkpoint-" not in str(target):
            return False
        with file.open("a") as out:
            out.write(f"{name} {target.name}\n")
        seen += 1
        return seen - 1 == die_at

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def half(target: Path, content: bytes) -> None:
        target.write_bytes(content[: len(content) // 2])
        die()

    save, save_file, to_json = torch.save, safetensors.torch.save_file, TrainerState.save_to_json

    def torch_save(obj, f, *args, **kwargs):
        if isinstance(f, (str, Path)) and dies("torch.save", Path(f)):
            buffer = io.BytesIO()
            save(obj, buffer)
            half(Path(f), buffer.getvalue())
        return save(obj, f, *args, **kwargs)

    def tensors(state, filename, *args, **kwargs):
        if dies("save_file", Path(filename)):
            half(Path(filename), safetensors.torch.save(state))
        return save_file(state, filename, *args, **kwargs)

    def state_json(self, path):
        if dies("save_to_json", Path(path)):
            half(Path(path), b'{"global_step": 2, "log_history": [')
        return to_json(self, path)

    commit, begin, rmtree = checkpoints.commit, checkpoints.begin, shutil.rmtree

    def committed(path, **kwargs):
        if dies("before commit", Path(path)):
            die()
        commit(path, **kwargs)
        if dies("after commit", Path(path)):
            die()

    def begun(path):
        begin(path)
        if dies("after begin", Path(path)):
            die()

    def removed(path, *args, **kwargs):
        if dies("rmtree", Path(path)):
            for name in sorted(Path(path).iterdir())[::2]:
                name.unlink()
            die()
        return rmtree(path, *args, **kwargs)

    torch.save, TrainerState.save_to_json = torch_save, state_json
    for module in list(sys.modules.values()):
        for name in ("save_file", "safe_save_file"):
            if getattr(module, name, None) is save_file:
                setattr(module, name, tensors)
    checkpoints.commit, checkpoints.begin, checkpoints.shutil.rmtree = committed, begun, removed


def what_remains(output_dir: Path) -> dict:
    found, skipped = checkpoints.newest_sound(output_dir)
    step = json.loads((found / "trainer_state.json").read_text())["global_step"] if found else 0
    unfinished = len(list(output_dir.glob(f"checkpoint-*/{UNFINISHED}")))
    return {"sound": step, "skipped": skipped, "unfinished": unfinished}


def steps_done(order: Path) -> int:
    """Optimiser steps that the last run had finished, by its last micro-batch."""
    lines = order.read_text().split() if order.exists() else []
    return int(lines[-2]) if lines else 0


def ten_kills(settings: dict, folder: Path) -> dict:
    """Kill one run after another at random moments, `kills` times, then let the last one finish.

    The moment is drawn as steps and seconds, so that ten kills are spread over the whole run: while a model
    is loaded, in a step, between steps, while a checkpoint is written or an old one deleted.
    """
    draw = random.Random(settings["seed"])
    arguments = [settings["recipe"], "--output_dir", str(folder / "out"), "--resume_from_checkpoint", "true"]
    order = folder / "order.txt"
    kills: list[dict] = []
    while len(kills) < settings["kills"]:
        before = what_remains(folder / "out")["sound"]
        steps = 0 if before == settings["steps"] else draw.randint(0, 6)
        seconds = draw.uniform(0, 0.1) if steps else draw.uniform(0, 2.0)
        status = run(arguments, folder, kill=(steps * settings["accumulation"], seconds))
        if status != -signal.SIGKILL:
            assert status == 0
            continue
        remains = what_remains(folder / "out")
        done = max(before, steps_done(order), remains["sound"])
        kills.append({**remains, "resumed": before, "done": done, "lost": done - remains["sound"]})
    return {"kills": kills, "status": run(arguments, folder)}


def each_write(settings: dict, folder: Path) -> dict:
    """Kill half-way through every single write of the second checkpoint, and finish each time."""
    writes = (folder / "writes.txt").read_text().splitlines()
    second = [i for i, line in enumerate(writes) if line.startswith("after begin")][1]
    third = [i for i, line in enumerate(writes) if line.startswith("after begin")][2]
    rounds = []
    for index in range(second, third):
        place = folder / f"write-{index}"
        place.mkdir()
        output = ["--output_dir", str(place / "out")]
        status = run([settings["recipe"], *output], place, die_at=index)
        remains = what_remains(place / "out")
        done = run([settings["recipe"], *output, "--resume_from_checkpoint", "true"], place)
        rounds.append(
            {"write": writes[index], "status": status, **remains, "resumed": done, "folder": str(place)}
        )
    return {"rounds": rounds}


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text())
    root = Path(given["folder"])
    whole, killed = root / "whole", root / "killed"
    whole.mkdir()
    killed.mkdir()
    began = time.monotonic()
    report = {"whole": run([given["recipe"], "--output_dir", str(whole / "out")], whole)}
    report["seconds"] = time.monotonic() - began
    state = json.loads((whole / "out" / "trainer_state.json").read_text())
    given["steps"] = state["global_step"]
    report |= ten_kills(given, killed) if given["kills"] else each_write(given, whole)
    print(json.dumps(report))
