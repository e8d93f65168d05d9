"""A run killed at any moment and resumed is the run that nobody killed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file
from tiny import tiny_llama, tiny_tokenizer

SCRIPT = Path(__file__).parent / "scripts" / "killed_runs.py"
TIMES = ("runtime", "per_second")  # what a clock measures is no part of the result

CASES = {
    "full, accumulated, evaluated": dict(
        use_peft=False, gradient_accumulation_steps=2, eval_size=8, eval_strategy="steps", eval_steps=5
    ),
    "lora, packed, noisy": dict(
        lora_dropout=0.1,
        packing=True,
        max_length=48,
        per_device_train_batch_size=1,
        activation_checkpointing=True,
        number_loss="ntil",
    ),
}


def write_recipe(folder, **keys):
    # Dropout everywhere: a random state that is not restored shows.
    tiny_llama(vocab_size=104, attention_dropout=0.1).save_pretrained(folder / "model")
    tiny_tokenizer().save_pretrained(folder / "model")
    settings = dict(
        model_name_or_path=str(folder / "model"),
        dataset="nupa",
        nupa_tasks=["integer_add"],
        nupa_digits=[1, 2],
        nupa_size=72,
        use_peft=True,
        lora_target_modules="all-linear",
        max_steps=40,  # into the third epoch
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        lr_scheduler_type="cosine",
        warmup_steps=3,
        activation_checkpointing=False,
        logging_steps=2,  # windows that end between the checkpoints
        save_strategy="steps",
        save_steps=3,
        save_total_limit=2,
        disable_tqdm=True,
        seed=0,
    )
    (folder / "recipe.yaml").write_text(yaml.safe_dump({**settings, **keys}), encoding="utf-8")
    return str(folder / "recipe.yaml")


def killed(folder, recipe, **settings):
    (folder / "settings.json").write_text(json.dumps(dict(folder=str(folder), recipe=recipe, **settings)))
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder / "settings.json")],
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps(report))
    assert report["whole"] == 0, (folder / "whole" / "log.txt").read_text()[-3000:]
    return report


def same_result(ours, theirs):
    """The weights bit for bit; the log and every other entry of the trainer's state."""
    name = next(p.name for p in theirs.glob("*model.safetensors"))
    weights, expected = load_file(ours / name), load_file(theirs / name)
    assert weights.keys() == expected.keys() and expected
    for key in expected:
        assert weights[key].equal(expected[key]), key
    states = [json.loads((folder / "trainer_state.json").read_text()) for folder in (ours, theirs)]
    for state in states:
        state["log_history"] = [
            {k: v for k, v in entry.items() if not k.endswith(TIMES)} for entry in state["log_history"]
        ]
        state["log_history"][-1].pop("train_loss", None)  # summed in another order, see below
    assert states[0]["log_history"] == states[1]["log_history"]
    assert any("number_loss" in entry for entry in states[0]["log_history"])
    assert states[0]["global_step"] == states[1]["global_step"]
    assert states[0]["total_flos"] == states[1]["total_flos"]
    last = [
        json.loads((folder / "trainer_state.json").read_text())["log_history"][-1]
        for folder in (ours, theirs)
    ]
    assert last[0]["train_loss"] == pytest.approx(last[1]["train_loss"], rel=1e-6)


def micro_batches(*files):
    seen = {}
    for file in files:
        position = {}
        for line in file.read_text().splitlines():
            step, rows = line.split()
            position[step] = position.get(step, -1) + 1
            assert seen.setdefault((step, position[step]), rows) == rows, "another row at the same place"
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_ten_kills_at_random_moments_change_nothing(name, tmp_path):
    recipe = write_recipe(tmp_path, **CASES[name])
    settings = yaml.safe_load(Path(recipe).read_text())
    accumulation = settings.get("gradient_accumulation_steps", 1)
    report = killed(tmp_path, recipe, kills=10, seed=len(name), accumulation=accumulation)
    assert report["status"] == 0, (tmp_path / "killed" / "log.txt").read_text()[-3000:]
    same_result(tmp_path / "killed" / "out", tmp_path / "whole" / "out")
    assert len(report["kills"]) == 10
    assert max(kill["lost"] for kill in report["kills"]) <= settings["save_steps"]
    whole = micro_batches(tmp_path / "whole" / "order.txt")
    again = micro_batches(*(tmp_path / "killed").glob("order*.txt"))
    assert again == whole and len(set(whole.values())) > 10
    assert len({kill["done"] for kill in report["kills"]}) >= 4  # the moments are spread


@pytest.mark.slow
def test_a_kill_in_the_middle_of_any_write_leaves_a_sound_checkpoint(tmp_path):
    # With one checkpoint to keep, the old one must outlive every moment at which the new one is not whole.
    recipe = write_recipe(tmp_path, max_steps=9, save_total_limit=1)
    report = killed(tmp_path, recipe, kills=0)
    kinds = [entry["write"].split()[0] for entry in report["rounds"]]
    assert {"save_file", "torch.save", "save_to_json", "before", "rmtree", "after"} <= set(kinds)
    assert sum(kind == "torch.save" for kind in kinds) >= 3  # optimiser, scheduler, random state
    for entry in report["rounds"]:
        assert entry["status"] == -9 and entry["resumed"] == 0, entry
        whole = entry["write"].startswith(("rmtree", "after commit"))
        assert entry["sound"] == (6 if whole else 3), entry
        assert whole or "was not written to its end" in entry["skipped"][0]
        log = (Path(entry["folder"]) / "log.txt").read_text()
        assert whole or "checkpoint-6 is damaged (it was not written to its end)" in log
        same_result(Path(entry["folder"]) / "out", tmp_path / "whole" / "out")
