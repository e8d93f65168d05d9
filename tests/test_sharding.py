"""FSDP2 and ZeRO-3 on two processes take the steps of one process, and of a plain loss on full logits."""

import functools
import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from scripts.train_fsdp2_trainer import train_case
from sharding import STEPS, train_in_one_process
from test_trainer import METRICS

pytestmark = pytest.mark.xdist_group("sharding")  # each launch serves several tests: once, not once a worker

SCRIPTS = Path(__file__).parent / "scripts"
TOLERANCE = 2e-5  # of a tensor's norm, float32
HEADS = ("trained", "tied", "frozen", "saved")

FSDP2_CASES = {
    "trained head": dict(head="trained", units="root"),
    "tied head": dict(head="tied", units="root"),
    "frozen head": dict(head="frozen", units="root"),
    "head as its own unit": dict(head="trained", units="unit"),
    "head as its own unit, every micro-batch reduced": dict(head="trained", units="unit", sync_each=True),
    "frozen head as its own unit": dict(head="frozen", units="unit"),
    "head trained beside LoRA as its own unit": dict(head="saved", units="unit"),
    "head in one unit with the norm": dict(head="trained", units="tail"),
    "tied head in one unit with the norm": dict(head="tied", units="tail"),
    "head trained beside LoRA in one unit with the norm": dict(head="saved", units="tail"),
}


def launch(script: str, out: Path, argument: str, launcher: Sequence[str] = (), **environment) -> list[dict]:
    """Run a script in two processes; return what each saved."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    launcher = launcher or ("torch.distributed.run", "--nproc_per_node=2", f"--master_port={port}")
    launcher = [part.format(port=port) for part in launcher]
    done = subprocess.run(
        [sys.executable, "-m", *launcher, str(SCRIPTS / script), str(out), argument],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [torch.load(out / f"rank{rank}.pt", weights_only=False) for rank in range(2)]


@functools.cache
def one_process(head: str, loss: str) -> dict:
    return train_in_one_process(head, loss)


def assert_close(ours: dict, theirs: dict, where: str) -> None:
    assert ours.keys() == theirs.keys(), where
    for name in ours:
        error, size = (ours[name] - theirs[name]).norm(), theirs[name].norm()
        assert error <= TOLERANCE * size.clamp(min=1e-6), f"{where}, {name}: {error} of {size}"


def assert_same_training(seen: dict, head: str) -> None:
    """Losses, gradients, metric sums and weights equal one process's, with our head and with full logits."""
    for loss in ("numsft", "plain"):
        expected = one_process(head, loss)
        assert seen["losses"] == pytest.approx(expected["losses"], rel=TOLERANCE), loss
        for step in range(len(STEPS)):
            assert_close(seen["gradients"][step], expected["gradients"][step], f"{loss}, step {step}")
        assert_close(seen["weights"], expected["weights"], f"{loss}, weights")
    for ours, theirs in zip(seen["sums"], one_process(head, "numsft")["sums"], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def fsdp2(tmp_path_factory):
    return launch("train_fsdp2.py", tmp_path_factory.mktemp("fsdp2"), json.dumps(FSDP2_CASES))


@pytest.mark.parametrize("name", FSDP2_CASES)
def test_fsdp2_takes_the_steps_of_one_process(fsdp2, name):
    for rank in fsdp2:
        assert_same_training(rank[name], FSDP2_CASES[name]["head"])


@pytest.mark.parametrize("name", FSDP2_CASES)
def test_fsdp2_makes_the_same_collective_calls_whatever_the_data(fsdp2, name):
    first, *later = [calls for rank in fsdp2 for calls in rank[name]["collectives"]]
    assert sum(first.values()) > 0
    assert all(calls == first for calls in later)


ZERO3_CASES = {
    "trained head": dict(head="trained"),
    "tied head": dict(head="tied"),
    "frozen head": dict(head="frozen"),
    "head trained beside LoRA": dict(head="saved"),
    "trained head, transformers' own integration": dict(head="trained", known_to_transformers=True),
    "tied head, transformers' own integration": dict(head="tied", known_to_transformers=True),
}
ZERO3_ORACLES = {f"{head} oracle": dict(head=head, loss="plain") for head in HEADS}


@pytest.fixture(scope="module")
def zero3(tmp_path_factory):
    if importlib.util.find_spec("deepspeed") is None:
        pytest.skip("deepspeed is not installed")
    cases = json.dumps(ZERO3_CASES | ZERO3_ORACLES)
    return launch("train_zero3.py", tmp_path_factory.mktemp("zero3"), cases, DS_ACCELERATOR="cpu")


@pytest.mark.slow
@pytest.mark.parametrize("name", ZERO3_CASES)
def test_zero3_takes_the_steps_of_one_process_and_of_the_plain_forward(zero3, name):
    head = ZERO3_CASES[name]["head"]
    for rank in zero3:
        assert rank[name]["head_elements_left"] == 0, "the head was not partitioned"
        assert_same_training(rank[name], head)
        oracle = rank[f"{head} oracle"]
        assert rank[name]["losses"] == pytest.approx(oracle["losses"], rel=TOLERANCE)
        assert_close(rank[name]["weights"], oracle["weights"], "weights")


@pytest.mark.slow
@pytest.mark.parametrize("name", ZERO3_CASES)
def test_zero3_makes_the_same_collective_calls_whatever_the_data(zero3, name):
    # In its first step DeepSpeed records which parameters are used when, and fetches them otherwise later.
    ranks = [rank[name]["collectives"] for rank in zero3]
    assert ranks[0] == ranks[1]
    first, *later = ranks[0][2:]
    assert sum(first.values()) > 0
    assert all(calls == first for calls in later)


TRAINER_CASES = {
    "trained head": dict(head="trained", gradient_accumulation_steps=2),
    "tied head": dict(head="tied", gradient_accumulation_steps=2),
    "frozen head": dict(head="frozen", gradient_accumulation_steps=2),
    "head trained beside LoRA": dict(head="saved", gradient_accumulation_steps=2),
    "packed": dict(head="trained", packing=True, max_length=24, gradient_accumulation_steps=1),
}
ACCELERATE = (
    *(
        "accelerate.commands.launch",
        "--use_fsdp",
        "--fsdp_version=2",
        "--num_processes=2",
        "--num_machines=1",
    ),
    *("--mixed_precision=no", "--dynamo_backend=no", "--main_process_port={port}"),
    *("--fsdp_auto_wrap_policy=TRANSFORMER_BASED_WRAP", "--fsdp_state_dict_type=FULL_STATE_DICT"),
    *("--fsdp_cpu_ram_efficient_loading=false", "--fsdp_reshard_after_forward=true"),
)


@pytest.fixture(scope="module")
def fsdp2_trainer(tmp_path_factory):
    out = tmp_path_factory.mktemp("trainer")
    cases = json.dumps(TRAINER_CASES)
    return launch("train_fsdp2_trainer.py", out, cases, ACCELERATE, ACCELERATE_USE_CPU="true")


@pytest.mark.parametrize("name", TRAINER_CASES)
def test_the_trainer_under_accelerates_fsdp2_takes_the_steps_of_one_process(fsdp2_trainer, tmp_path, name):
    case = {**TRAINER_CASES[name], "gradient_accumulation_steps": 1}
    one = train_case(tmp_path, {**case, "per_device_train_batch_size": 4 if "packing" in case else 8}, False)
    for rank in fsdp2_trainer:
        two = rank[name]
        for step in range(2):
            assert_close(two["steps"][step], one["steps"][step], f"step {step}")
            for metric in (*METRICS, "num_tokens"):
                expected = one["logs"][step][metric]
                assert two["logs"][step][metric] == pytest.approx(expected, rel=TOLERANCE), metric
        assert_close(two["weights"], one["weights"], "weights")
        for metric in METRICS:
            expected = one["evaluation"][f"eval_{metric}"]
            assert two["evaluation"][f"eval_{metric}"] == pytest.approx(expected, rel=1e-4), metric


@pytest.mark.parametrize("name", TRAINER_CASES)
def test_the_trainer_makes_the_same_collective_calls_whatever_the_data(fsdp2_trainer, name):
    first, *later = [calls for rank in fsdp2_trainer for calls in rank[name]["collectives"]]
    assert first["c10d.allreduce_.default"] > 0, "N and S are counted over the ranks"
    assert all(calls == first for calls in later)
