"""A run killed at any moment and resumed is the run that nobody killed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from interrupted import same_result, write_recipe

SCRIPT = Path(__file__).parent / "scripts" / "killed_runs.py"

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
