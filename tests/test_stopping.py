"""SIGTERM and Ctrl-C: one message, status 1, and what was trained is kept."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from interrupted import same_result, write_recipe

import numsft.data
from numsft import NumSFTTrainer
from numsft.checkpoints import newest_sound
from numsft.run import main

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A recipe, and the output of its run that nothing interrupts."""
    folder = tmp_path_factory.mktemp("finished")
    recipe = write_recipe(
        folder, max_steps=9, save_steps=6, nupa_size=32, eval_size=8, eval_strategy="epoch", lora_dropout=0.1
    )
    assert main([recipe, "--output_dir", str(folder / "out")]) == 0
    return recipe, folder / "out"


def signal_in_step(monkeypatch, step, number=signal.SIGTERM, times=1):
    """Send this process signals in the middle of an optimiser step (0 is the first)."""
    inner = NumSFTTrainer.training_step

    def signalled(self, *args, **kwargs):
        loss = inner(self, *args, **kwargs)
        for _ in range(times if self.state.global_step == step else 0):
            os.kill(os.getpid(), number)
        return loss

    monkeypatch.setattr(NumSFTTrainer, "training_step", signalled)


def one_message(capsys, status):
    assert status == 1
    errors = capsys.readouterr().err
    assert errors.count("error: ") == 1 and "Traceback" not in errors
    message = errors.split("error: ")[1]
    assert len(message) <= 900 and len(message.splitlines()) <= 4
    return message


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("step", [3, 7])  # of eight steps an epoch: the last of the first epoch
def test_a_run_stopped_in_a_step_saves_after_it_and_goes_on_from_there(
    finished, step, number, tmp_path, capsys, monkeypatch
):
    recipe, whole = finished
    arguments = [recipe, "--output_dir", str(tmp_path / "out")]
    handlers = [signal.getsignal(kind) for kind in (signal.SIGTERM, signal.SIGINT)]
    with monkeypatch.context() as patched:
        signal_in_step(patched, step, number)
        message = one_message(capsys, main(arguments))
    assert handlers == [signal.getsignal(kind) for kind in (signal.SIGTERM, signal.SIGINT)]
    assert f"Stopped by {number.name} after optimiser step {step + 1}" in message
    assert f"checkpoint-{step + 1} is complete" in message and "--resume_from_checkpoint true" in message
    assert newest_sound(tmp_path / "out") == (tmp_path / "out" / f"checkpoint-{step + 1}", [])
    assert main([*arguments, "--resume_from_checkpoint", "true"]) == 0
    same_result(tmp_path / "out", whole)


def test_a_run_stopped_while_it_loads_ends_at_once_and_leaves_nothing(
    finished, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(numsft.data, "load_datasets", lambda *a, **k: os.kill(os.getpid(), signal.SIGTERM))
    message = one_message(capsys, main([finished[0], "--output_dir", str(tmp_path / "out")]))
    assert message.startswith("Stopped by SIGTERM") and not (tmp_path / "out").exists()


def test_a_run_that_saves_no_checkpoints_ends_after_the_step_and_says_so(
    finished, tmp_path, capsys, monkeypatch
):
    signal_in_step(monkeypatch, 2)
    status = main([finished[0], "--output_dir", str(tmp_path / "out"), "--save_strategy", "no"])
    message = one_message(capsys, status)
    assert "after optimiser step 3" in message and "save_strategy is no" in message
    assert not list((tmp_path / "out").glob("checkpoint-*"))


def test_a_signal_during_the_last_save_lets_it_end(finished, tmp_path, capsys, monkeypatch):
    inner = NumSFTTrainer.save_model

    def signalled(self, output_dir=None, _internal_call=False):
        if output_dir is None:  # checkpoints name their folder
            os.kill(os.getpid(), signal.SIGTERM)
        inner(self, output_dir, _internal_call)

    monkeypatch.setattr(NumSFTTrainer, "save_model", signalled)
    message = one_message(capsys, main([finished[0], "--output_dir", str(tmp_path / "out")]))
    assert "the model is saved in" in message
    same_result(tmp_path / "out", finished[1])


def test_a_second_signal_ends_the_run_at_once(finished, tmp_path, capsys, monkeypatch):
    signal_in_step(monkeypatch, 2, times=2)
    status = main([finished[0], "--output_dir", str(tmp_path / "out"), "--save_steps", "1"])
    assert "in the middle of a step" in one_message(capsys, status)
    assert newest_sound(tmp_path / "out")[0].name == "checkpoint-2"


def test_a_step_that_takes_too_long_is_given_up(finished, tmp_path):
    code = (
        "import os, signal, sys, time\n"
        "from numsft import NumSFTTrainer\n"
        "from numsft.run import main\n"
        "inner = NumSFTTrainer.training_step\n"
        "def slow(self, *args, **kwargs):\n"
        "    if self.state.global_step == 7:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        time.sleep(60)\n"
        "    return inner(self, *args, **kwargs)\n"
        "NumSFTTrainer.training_step = slow\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code, finished[0], "--output_dir", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "NUMSFT_STOP_SECONDS": "0.5"},
    )
    assert done.returncode == 1 and time.monotonic() - began < 60
    assert done.stderr.count("error: ") == 1 and "did not end within 0.5 s" in done.stderr
    assert newest_sound(tmp_path / "out")[0].name == "checkpoint-6"


@pytest.mark.skipif(
    sys.platform != "linux", reason="accelerate's launcher of one process passes no signal on"
)
def test_a_launcher_that_is_stopped_stops_its_run(finished, tmp_path):
    out = tmp_path / "out"
    command = ["-m", "accelerate.commands.launch", "--num_processes", "1", "--cpu", "-m", "numsft.run"]
    options = ["--max_steps", "100000", "--save_steps", "100000", "--eval_strategy", "no"]
    with (tmp_path / "log.txt").open("w") as log:
        launcher = subprocess.Popen(
            [
                sys.executable,
                *command,
                finished[0],
                "--output_dir",
                str(out),
                *options,
                "--logging_steps",
                "1",
            ],
            stdout=log,
            stderr=log,
            cwd=ROOT,
        )
        text = wait_for(lambda: "'loss'" in (tmp_path / "log.txt").read_text() or launcher.poll() is not None)
        assert launcher.poll() is None, text
        launcher.terminate()
        launcher.wait(timeout=30)
        wait_for(lambda: "error: Stopped by SIGTERM" in (tmp_path / "log.txt").read_text())
    saved, damaged = newest_sound(out)
    assert saved is not None and not damaged
    assert json.loads((saved / "trainer_state.json").read_text())["global_step"] >= 1
    shutil.rmtree(out)


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.1)
