"""A run that pushes: what arrives while it trains and at its end, and that no Hub can make it fail."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hub_server import TOKEN, Fault, HubServer
from tiny import tiny_llama, tiny_tokenizer

ROOT = Path(__file__).parents[2]
FINAL = {
    "README.md",
    "adapter_config.json",
    "adapter_model.safetensors",
    "resolved.yaml",
    "trainer_state.json",
}


@pytest.fixture
def hub():
    with HubServer() as server:
        yield server


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny_llama(vocab_size=128, tied=True).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def train(tmp_path, model_folder, hub):
    """Run the command on a tiny model with `push_to_hub`; returns the finished process."""

    def run(*arguments, environment=None, **keys):
        defaults = dict(
            model_name_or_path=str(model_folder),
            dataset="nupa",
            nupa_tasks=["integer_add"],
            nupa_size=32,
            output_dir=str(tmp_path / "out"),
            use_peft=True,
            lora_target_modules="all-linear",
            max_steps=4,
            per_device_train_batch_size=2,
            activation_checkpointing=False,
            save_strategy="steps",
            save_steps=2,
            logging_steps=1,
            disable_tqdm=True,
            report_to="none",
            push_to_hub=True,
            hub_model_id="somebody/adder",
            hub_private_repo=True,
        )
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump({**defaults, **keys}), encoding="utf-8")
        return command(hub, "-m", "numsft.run", str(path), *arguments, environment=environment)

    return run


def command(hub, *arguments, environment=None):
    settings = {
        "HF_ENDPOINT": hub.url,
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_TOKEN": TOKEN,
        "NUMSFT_HUB_WAIT": "0.01",
    }
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **settings, **(environment or {})},
        timeout=300,
    )


def later_command(done):
    (line,) = re.findall(
        r"^(?:HF_HUB_OFFLINE=0 )?python (-m numsft\.hub push .*)$", done.stderr, re.MULTILINE
    )
    return line.split()


def assert_arrived(hub, out):
    received = hub.repositories["somebody/adder"].files
    assert set(received) >= FINAL
    for name, content in received.items():
        assert content == (out / name).read_bytes(), name


def test_a_run_pushes_each_save_and_its_end(train, hub, tmp_path):
    done = train("--hub_token", TOKEN, environment={"HF_TOKEN": ""})
    assert done.returncode == 0, done.stderr
    assert f"pushed to {hub.url}/somebody/adder" in done.stdout
    repository = hub.repositories["somebody/adder"]
    assert repository.private
    assert repository.commits[-1] == "End of training"
    steps = [c for c in repository.commits if c.startswith("Training in progress, step ")]
    assert steps and len(repository.commits) == len(steps) + 1
    assert_arrived(hub, tmp_path / "out")
    kept = [
        name
        for name in repository.files
        if re.search(r"optimizer|scheduler|rng|training_args|checkpoint", name)
    ]
    assert not kept
    # transformers pickles the token into training_args.bin, and pushes that
    assert TOKEN.encode() in (tmp_path / "out" / "training_args.bin").read_bytes()
    assert not any(TOKEN.encode() in content for content in repository.files.values())
    card = repository.files["README.md"].decode()
    assert 'name = "somebody/adder"' in card and "optimiser steps: 4 of 4" in card
    assert not (tmp_path / "out" / ".push").exists()


@pytest.mark.slow  # two trainings
def test_the_strategy_end_pushes_once_and_checkpoint_keeps_what_resumes(train, hub, tmp_path):
    assert train(hub_strategy="end").returncode == 0
    assert hub.repositories["somebody/adder"].commits == ["End of training"]
    done = train(
        "--overwrite_output_dir", hub_strategy="checkpoint", hub_always_push=True, save_total_limit=1
    )
    assert done.returncode == 0, done.stderr
    files = hub.repositories["somebody/adder"].files
    assert "last-checkpoint/optimizer.pt" in files and "last-checkpoint/training_args.bin" not in files
    state = json.loads(files["last-checkpoint/trainer_state.json"])
    assert state["global_step"] == 4
    assert hub.repositories["somebody/adder"].commits[-3:] == [
        "Training in progress, step 2",
        "Training in progress, step 4",
        "End of training",
    ]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault("PUT /lfs/|repos/create|preupload|/commit/", 401), "hf auth login"),
        (Fault("repos/create", "close"), "connection"),
    ],
    ids=["login", "network"],
)
def test_a_push_that_fails_does_not_fail_the_run(train, hub, tmp_path, fault, words):
    hub.faults = [fault]
    done = train()
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    assert all((out / name).is_file() for name in FINAL) and (out / "checkpoint-4").is_dir()
    assert "Traceback" not in done.stderr and words in done.stderr
    assert "saved in" in done.stdout and "not pushed" in done.stdout
    hub.faults.clear()
    later = command(hub, *later_command(done))
    assert later.returncode == 0, later.stderr
    assert_arrived(hub, out)
    assert hub.repositories["somebody/adder"].private


def test_a_failing_push_at_a_save_is_said_and_the_end_heals_it(train, hub, tmp_path):
    # transformers' own says nothing of a push that fails in the background
    hub.faults = [Fault("/commit/", 403, times=1)]
    done = train()
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the next save tries again") == 1 and "403" in done.stderr
    assert f"pushed to {hub.url}" in done.stdout and "To push it later" not in done.stderr
    assert_arrived(hub, tmp_path / "out")


PLAIN = """
import sys
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer
trainer = SFTTrainer(
    AutoModelForCausalLM.from_pretrained(sys.argv[1]),
    SFTConfig(sys.argv[2], max_steps=2, save_steps=2, report_to="none", use_cpu=True, bf16=False,
              disable_tqdm=True, push_to_hub=True, hub_model_id="somebody/plain"),
    train_dataset=Dataset.from_dict({"prompt": ["1+1="] * 16, "completion": ["2"] * 16}),
    processing_class=AutoTokenizer.from_pretrained(sys.argv[1]),
)
trainer.train()
print("trained")
"""


def test_plain_trl_is_silent_on_one_failure_and_ends_in_another(hub, tmp_path, model_folder):
    """Why this package pushes by itself: when this fails, upstream has changed and `HubMixin` can shrink."""
    hub.faults = [Fault("/commit/", 403)]
    silent = command(hub, "-c", PLAIN, str(model_folder), str(tmp_path / "plain"))
    assert silent.returncode == 0 and "trained" in silent.stdout
    assert hub.count("/commit/main") == 1 and "403" not in silent.stderr
    hub.faults = [Fault("repos/create", 403), Fault("GET /api/models", 404)]
    fatal = command(hub, "-c", PLAIN, str(model_folder), str(tmp_path / "plain"))
    assert fatal.returncode == 1 and "Traceback" in fatal.stderr and "trained" not in fatal.stdout


def test_offline_mode_is_said_before_training_and_after(train, hub, tmp_path):
    done = train(environment={"HF_HUB_OFFLINE": "1"}, max_steps=1)
    assert done.returncode == 0, done.stderr
    assert done.stderr.index("Training starts") < done.stderr.index("To push it later")
    assert "HF_HUB_OFFLINE=0 python -m numsft.hub push" in done.stderr and not hub.requests


def test_a_dry_run_and_a_wrong_name_leave_the_hub_alone(train, hub, tmp_path):
    assert train("--dry_run").returncode == 0
    wrong = train(hub_model_id="a/b/c")
    assert wrong.returncode == 2 and "USER/NAME" in wrong.stderr and "Traceback" not in wrong.stderr
    assert not hub.requests and not (tmp_path / "out").exists()


@pytest.mark.slow  # two trainings
def test_a_merge_asked_for_is_made_again_on_resume_and_stays_here(train, hub, tmp_path):
    done = train(merge=True, max_steps=2)
    assert done.returncode == 0, done.stderr
    merged = tmp_path / "out" / "merged"
    assert "merged into" in done.stdout
    first = (merged / "model.safetensors").read_bytes()
    done = train("--resume_from_checkpoint", "true", merge=True, max_steps=4, learning_rate=0.01)
    assert done.returncode == 0, done.stderr
    assert (merged / "model.safetensors").read_bytes() != first
    assert not any(name.startswith("merged") for name in hub.repositories["somebody/adder"].files)
    assert "library_name: transformers" in (merged / "README.md").read_text()


def test_the_cards_code_loads_the_adapter_from_the_hub(train, hub, tmp_path):
    assert train(save_strategy="no").returncode == 0
    card = hub.repositories["somebody/adder"].files["README.md"].decode()
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    done = command(hub, "-c", code, environment={"HF_HOME": str(tmp_path / "home")})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("17 + 25 = ")
    assert hub.count("somebody/adder/resolve/.*/adapter_model.safetensors")
