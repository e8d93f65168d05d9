"""The committed studies: their files can be run, their results are whole, the README says what they say."""

import json
import re
from pathlib import Path

import pytest
import torch
from helpers import script_module

from numsft.compare import load_study
from numsft.recipes import load_recipe

ROOT = Path(__file__).resolve().parent.parent
STUDIES = sorted(path for path in (ROOT / "studies").glob("*/*.yaml") if path.stem != "base")
RESULTS = sorted((ROOT / "studies").glob("*/*/results.json"))


def name(path):
    return str(path.relative_to(ROOT / "studies"))


@pytest.mark.parametrize("path", STUDIES, ids=name)
def test_every_run_of_a_study_is_a_recipe(path, tmp_path):
    study = load_study(path)
    for objective in study.objectives:
        recipe = tmp_path / f"{objective}.yaml"
        recipe.write_text(study.recipe(objective, study.seeds[0], tmp_path / "out"))
        assert load_recipe(recipe).training.seed == study.seeds[0]


@pytest.mark.parametrize("path", RESULTS, ids=name)
def test_results_are_those_of_the_study_beside_them_and_whole(path):
    results = json.loads(path.read_text(encoding="utf-8"))
    study = load_study(path.parent.with_suffix(".yaml"))
    assert results["objectives"] == {
        objective: study.overrides | values for objective, values in study.objectives.items()
    }
    assert results["missing"] == []
    found = {(run["objective"], run["seed"]) for run in results["runs"]}
    assert found == {(objective, seed) for objective in study.objectives for seed in results["seeds"]}
    assert results["seeds"] == list(study.seeds)


@pytest.mark.parametrize("path", RESULTS, ids=name)
def test_results_name_no_folder_of_a_machine(path):
    assert not re.search(r'"/|\w:\\\\', path.read_text(encoding="utf-8"))


def test_the_readmes_tables_are_the_ones_of_the_results():
    script = script_module(ROOT / "studies" / "readme.py")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text == script.with_tables(text), "run `python studies/readme.py`"


def test_dels_gradient_is_the_zero_one_cost_times_the_level_only_far_above_zero():
    script = script_module(ROOT / "studies" / "arithmetic" / "del_limit.py")
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(64, 10, generator=generator, dtype=torch.float64)
    classes = torch.randint(10, (64,), generator=generator)
    far = script.compare(logits + 1e6, classes)
    assert far["cosine, mean"] == pytest.approx(1, abs=1e-4)
    assert far["best multiple"] == pytest.approx(1e6, rel=0.01)
    assert far["share left by it"] < 1e-4
    near = script.compare(logits, classes)
    assert near["cosine, mean"] < 0.9 and near["share left by it"] > 0.1
