"""Damaged checkpoints, full disks, unreadable rows, numbers that are not finite: one sentence, work kept."""

import json
import os
import resource
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import datasets
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from helpers import sums_dataset, tiny_trainer
from interrupted import same_result, write_recipe
from transformers import TrainerCallback

from numsft import NumSFTTrainer
from numsft.checkpoints import newest_sound
from numsft.errors import RunError
from numsft.run import main

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A recipe, and the output of its run that nothing interrupts, with checkpoints 2, 4 and 6."""
    folder = tmp_path_factory.mktemp("finished")
    recipe = write_recipe(folder, max_steps=6, save_steps=2, save_total_limit=None, use_peft=False)
    assert main([recipe, "--output_dir", str(folder / "out")]) == 0
    return recipe, folder / "out"


def one_message(capsys, status, expected=1):
    assert status == expected
    errors = capsys.readouterr().err
    assert errors.count("error: ") == 1 and "Traceback" not in errors
    message = errors.split("error: ")[1]
    assert len(message) <= 900 and len(message.splitlines()) <= 4
    return message


# Damaged checkpoints.


def cut(name):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-50])


def empty(name):
    return lambda folder: (folder / name).write_bytes(b"")


def garbage(name):
    return lambda folder: (folder / name).write_bytes(bytes(range(256)) * 40)


def flipped(name):
    def damage(folder):
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 255
        (folder / name).write_bytes(content)

    return damage


def emptied(folder):
    shutil.rmtree(folder)
    folder.mkdir()


DAMAGE = {
    "weights cut short": (cut("model.safetensors"), "model.safetensors is cut short"),
    "weights empty": (empty("model.safetensors"), "model.safetensors is empty"),
    "weights missing": (lambda f: (f / "model.safetensors").unlink(), "its weights are missing"),
    "optimiser missing": (lambda f: (f / "optimizer.pt").unlink(), "optimizer.pt is missing"),
    "optimiser cut short": (cut("optimizer.pt"), "optimizer.pt is damaged"),
    "optimiser with a wrong byte": (flipped("optimizer.pt"), "optimizer.pt is damaged"),
    "scheduler missing": (lambda f: (f / "scheduler.pt").unlink(), "scheduler.pt is missing"),
    "scheduler empty": (empty("scheduler.pt"), "scheduler.pt is empty"),
    "random state garbage": (garbage("rng_state.pth"), "rng_state.pth is damaged"),
    "random state missing": (lambda f: (f / "rng_state.pth").unlink(), "rng_state.pth is missing"),
    "state missing": (lambda f: (f / "trainer_state.json").unlink(), "trainer_state.json is missing"),
    "state cut short": (cut("trainer_state.json"), "trainer_state.json is not JSON"),
    "state empty": (empty("trainer_state.json"), "trainer_state.json is not JSON"),
    "state of something else": (
        lambda f: (f / "trainer_state.json").write_text("[1]"),
        "trainer_state.json has no global_step",
    ),
    "folder empty": (emptied, "trainer_state.json is missing"),
    "unfinished": (lambda f: (f / "_unfinished").touch(), "it was not written to its end"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_continued(name, finished, tmp_path, caplog):
    recipe, whole = finished
    out = shutil.copytree(whole, tmp_path / "out")
    damage, reason = DAMAGE[name]
    damage(out / "checkpoint-6")
    assert main([recipe, "--output_dir", str(out), "--resume_from_checkpoint", "true"]) == 0
    assert f"{out}/checkpoint-6 is damaged ({reason}): skipped" in caplog.text
    same_result(out, whole)
    assert newest_sound(out) == (out / "checkpoint-6", [])


def test_a_damaged_checkpoint_that_is_named_is_refused(finished, tmp_path, capsys):
    recipe, whole = finished
    out = shutil.copytree(whole, tmp_path / "out")
    (out / "checkpoint-6" / "optimizer.pt").unlink()
    arguments = [recipe, "--output_dir", str(out), "--resume_from_checkpoint", str(out / "checkpoint-6")]
    assert "optimizer.pt is missing" in one_message(capsys, main(arguments), expected=2)


def test_where_every_checkpoint_is_damaged_the_run_begins_anew(finished, tmp_path, caplog):
    recipe, whole = finished
    out = shutil.copytree(whole, tmp_path / "out")
    for checkpoint in out.glob("checkpoint-*"):
        cut("model.safetensors")(checkpoint)
    assert main([recipe, "--output_dir", str(out), "--resume_from_checkpoint", "true"]) == 0
    for step in (2, 4, 6):
        assert f"checkpoint-{step} is damaged" in caplog.text
    assert "starting from the beginning" in caplog.text
    same_result(out, whole)


def test_a_run_resumed_at_its_last_step_trains_no_further(finished, tmp_path):
    # The Trainer took a step more than max_steps; with a constant rate that changes the weights.
    recipe = finished[0]
    out = tmp_path / "out"
    constant = [recipe, "--output_dir", str(out), "--lr_scheduler_type", "constant", "--max_steps", "4"]
    assert main(constant) == 0
    whole = shutil.copytree(out, tmp_path / "whole")
    (out / "model.safetensors").unlink()
    assert main([*constant, "--resume_from_checkpoint", "true"]) == 0
    same_result(out, whole)


def test_weights_alone_are_enough_where_the_recipe_saves_no_more(finished, tmp_path):
    out = tmp_path / "out"
    arguments = [finished[0], "--output_dir", str(out), "--save_only_model"]
    assert main([*arguments, "--max_steps", "4"]) == 0
    assert not (out / "checkpoint-4" / "optimizer.pt").exists()
    assert main([*arguments, "--resume_from_checkpoint", "true"]) == 0
    assert (out / "checkpoint-6").is_dir()


# Full disks.


@contextmanager
def files_up_to(size):
    """A limit on the size of a file makes writes fail as a full disk does, after some bytes were written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def from_step(monkeypatch, step, action):
    inner = NumSFTTrainer.training_step

    def acting(self, *args, **kwargs):
        if self.state.global_step == step:
            action()
        return inner(self, *args, **kwargs)

    monkeypatch.setattr(NumSFTTrainer, "training_step", acting)


# The tiny model has some 100 kB of weights and twice that of optimiser state.
@pytest.mark.parametrize("size", [500, 20_000, 150_000])  # fails in a JSON file, the weights, the optimiser
def test_a_full_disk_at_a_checkpoint_keeps_the_one_before(size, finished, tmp_path, capsys, monkeypatch):
    recipe, whole = finished
    arguments = [recipe, "--output_dir", str(tmp_path / "out")]
    with files_up_to(size) as limit, monkeypatch.context() as patched:
        from_step(patched, 3, limit)
        status = main(arguments)
    message = one_message(capsys, status)
    out = tmp_path / "out"
    assert f"{out}/checkpoint-4 could not be written" in message and "make room" in message
    assert f"{out}/checkpoint-2 is complete" in message
    found, skipped = newest_sound(out)
    assert found == out / "checkpoint-2" and "it was not written to its end" in skipped[0]
    assert main([*arguments, "--resume_from_checkpoint", "true"]) == 0
    same_result(out, whole)


def test_a_full_disk_at_the_last_save_keeps_the_checkpoints(finished, tmp_path, capsys, monkeypatch):
    recipe, whole = finished
    arguments = [recipe, "--output_dir", str(tmp_path / "out")]
    inner = NumSFTTrainer.save_model
    with files_up_to(20_000) as limit, monkeypatch.context() as patched:

        def limited(self, output_dir=None, _internal_call=False):
            if output_dir is None:  # checkpoints name their folder
                limit()
            inner(self, output_dir, _internal_call)

        patched.setattr(NumSFTTrainer, "save_model", limited)
        status = main(arguments)
    message = one_message(capsys, status)
    assert "The trained model in" in message and "checkpoint-6 is complete" in message
    assert main([*arguments, "--resume_from_checkpoint", "true"]) == 0
    same_result(tmp_path / "out", whole)


def test_a_full_disk_where_the_rows_are_cached_is_named(finished, tmp_path, capsys, monkeypatch):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(json.dumps({"question": f"{i}+1", "answer": str(i + 1)}) + "\n" for i in range(4000))
    )
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.arrow_dataset.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    arguments = [
        finished[0],
        "--output_dir",
        str(tmp_path / "out"),
        "--dataset",
        str(rows),
        "--max_steps",
        "1",
    ]
    with files_up_to(30_000) as limit:
        limit()
        status = main(arguments)
    message = one_message(capsys, status)
    assert (
        f"prepared data could not be written to {tmp_path}/cache" in message
        and "HF_DATASETS_CACHE" in message
    )
    assert not (tmp_path / "out").exists()
    assert main(arguments) == 0


# Unreadable rows.

GOOD = b'{"prompt": "1+1=", "completion": "2"}\n'
ROWS = {
    "broken JSON": (GOOD * 2 + b'{"prompt": "1+\n', ["line 3", "not valid JSON"]),
    "nested too deeply": (GOOD + b"[" * 100_000 + b"\n", ["line 2", "not valid JSON"]),
    "not UTF-8": (GOOD + b'{"prompt": "caf\xe9", "completion": "2"}\n', ["line 2", "not UTF-8"]),
    "not an object": (GOOD + b"[1, 2]\n", ["line 2", "list"]),
    "null completion": (GOOD + b'{"prompt": "1", "completion": null}\n', ["line 2", "nothing", "completion"]),
    "missing completion": (GOOD + b'{"prompt": "1"}\n', ["line 2", "nothing", "completion"]),
    "NaN completion": (GOOD + b'{"prompt": "1", "completion": NaN}\n', ["line 2", "nan", "completion"]),
    "wrong type": (GOOD + b'{"prompt": "1", "completion": {"a": 1}}\n', ["line 2", "dict", "completion"]),
    "half a surrogate": (
        GOOD + b'{"prompt": "\\ud800", "completion": "1"}\n',
        ["line 2", "surrogate", "prompt"],
    ),
    "mixed forms": (
        GOOD + b'{"prompt": [{"role": "user", "content": "1"}], "completion": '
        b'[{"role": "assistant", "content": "1"}]}\n',
        ["line 2", "message lists"],
    ),
    "empty": (b"", ["no rows"]),
    "only white space": (b"\n \n", ["no rows"]),
    "missing": (None, ["does not exist"]),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_that_cannot_be_read_is_named_and_nothing_is_written(name, finished, tmp_path, capsys):
    content, words = ROWS[name]
    file = tmp_path / "rows.jsonl"
    if content is not None:
        file.write_bytes(content)
    arguments = [finished[0], "--output_dir", str(tmp_path / "out"), "--dataset", str(file)]
    message = one_message(capsys, main(arguments), expected=2)
    assert str(file) in message and all(word in message for word in words)
    assert not (tmp_path / "out").exists()


def parquet(file, completions):
    table = pyarrow.table({"prompt": [f"{i}+1=" for i in range(len(completions))], "completion": completions})
    pyarrow.parquet.write_table(table, file, compression="none", use_dictionary=False)


def cut_parquet(file):
    parquet(file, [str(i) for i in range(5000)])
    file.write_bytes(file.read_bytes()[:-2000])


def overwritten_parquet(file):
    parquet(file, [str(i) for i in range(5000)])
    content = file.read_bytes()
    file.write_bytes(content[:4] + b"\xff" * 30_000 + content[30_004:])


PARQUET = {
    "cut short": (cut_parquet, ["not a readable Parquet file"]),
    "overwritten": (overwritten_parquet, ["not a readable Parquet file"]),
    "null completion": (lambda file: parquet(file, ["1", None, "3"]), ["row 1", "nothing", "completion"]),
    "wrong type": (lambda file: parquet(file, [True, False]), ["row 0", "bool", "completion"]),
    "no rows": (lambda file: parquet(file, []), ["no rows"]),
    "empty": (lambda file: file.write_bytes(b""), ["not a readable Parquet file"]),
}


@pytest.mark.parametrize("name", PARQUET)
def test_a_parquet_file_that_cannot_be_read_is_named(name, finished, tmp_path, capsys):
    write, words = PARQUET[name]
    file = tmp_path / "rows.parquet"
    write(file)
    arguments = [finished[0], "--output_dir", str(tmp_path / "out"), "--dataset", str(file)]
    message = one_message(capsys, main(arguments), expected=2)
    assert str(file) in message and all(word in message for word in words)
    assert not (tmp_path / "out").exists()


# Numbers that are not finite.


class Spoil(TrainerCallback):
    """Makes a gradient or a weight infinite in a step (counted from 1)."""

    def __init__(self, step, *, weight=False):
        self.step, self.weight = step, weight
        self.active = False

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        parameter = next(p for p in model.parameters() if p.requires_grad)
        parameter.register_hook(lambda g: g * np.inf if self.active and not self.weight else g)

    def on_step_begin(self, args, state, control, **kwargs):
        self.active = state.global_step + 1 == self.step

    def on_optimizer_step(self, args, state, control, model=None, **kwargs):
        if self.active and self.weight:
            next(p for p in model.parameters() if p.requires_grad).data[0, 0] = float("nan")


@pytest.mark.parametrize("max_grad_norm", [0.0, 1.0])
def test_a_gradient_that_is_not_finite_never_reaches_the_weights(max_grad_norm, tmp_path):
    trainer = tiny_trainer(
        tmp_path,
        dataset=sums_dataset(16),
        max_steps=6,
        max_grad_norm=max_grad_norm,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        save_strategy="steps",
        save_steps=2,
        callbacks=[Spoil(step=4)],
    )
    with pytest.raises(RunError) as raised:
        trainer.train()
    message = str(raised.value)
    # Sequential rows, four a step: the fourth step has the last four.
    assert "The gradient of optimiser step 4 is not finite, in rows 12, 13, 14, 15 of" in message
    assert f"{tmp_path}/checkpoint-2 is complete" in message
    assert all(torch.isfinite(p).all() for p in trainer.model.parameters())
    assert newest_sound(tmp_path) == (tmp_path / "checkpoint-2", [])


def test_weights_that_are_not_finite_do_not_replace_the_last_good_checkpoint(tmp_path):
    trainer = tiny_trainer(
        tmp_path,
        max_steps=4,
        save_strategy="steps",
        save_steps=2,
        save_total_limit=1,
        callbacks=[Spoil(step=4, weight=True)],
    )
    with pytest.raises(RunError, match="weights are not finite after optimiser step 4"):
        trainer.train()
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-2"]


# Two ranks.

FAULT_SCRIPT = ROOT / "tests" / "scripts" / "faulty_rank.py"


def two_ranks(fault, recipe, *arguments):
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(FAULT_SCRIPT)]
    return subprocess.run(
        [sys.executable, *command, fault, recipe, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=170,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
    )


TWO_RANKS = {
    "nan on rank 1": "The token loss and the number loss of optimiser step 4 is not finite, in rows",
    "inf gradient on rank 1": "gradient of optimiser step 4 is not finite, in rows",
    "full disk on rank 0": "checkpoint-4 could not be written",
    "rank 1 is killed": "Another process of this run has ended",
    "sigterm to rank 1": "Stopped by",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TWO_RANKS)
def test_a_fault_on_one_rank_ends_both_with_one_message(name, finished, tmp_path, caplog):
    words = TWO_RANKS[name]
    recipe, out = finished[0], tmp_path / "out"
    arguments = ["--output_dir", str(out), "--per_device_train_batch_size", "2"]
    done = two_ranks(name, recipe, *arguments)
    assert done.returncode != 0
    assert done.stderr.count("error: ") == 1, done.stderr[-3000:]
    assert words in done.stderr
    ours, _, launcher = done.stderr.partition("Traceback (most recent call last)")
    assert "error: " in ours and "ChildFailedError" in launcher  # the launcher's own trace, and no other
    assert "Traceback (most recent call last)" not in launcher
    found, _ = newest_sound(out)
    assert found == out / ("checkpoint-4" if "sigterm" in name else "checkpoint-2")
    again = two_ranks("none", recipe, *arguments, "--resume_from_checkpoint", "true")
    assert again.returncode == 0, again.stderr[-3000:]
    assert again.stderr.count("is damaged") == (1 if "disk" in name else 0)
    whole = tmp_path.parent / "two-ranks-whole"
    if not whole.exists():
        assert two_ranks("none", recipe, "--output_dir", str(whole), *arguments[2:]).returncode == 0
    same_result(out, whole)
