"""What the README says is what the package does."""

import importlib
import json
import re
import shlex
import sys
import types
from pathlib import Path

import pytest
from helpers import script_module, sums_dataset
from tiny import tiny_llama, tiny_tokenizer

from numsft.console import Parser
from numsft.losses import NUMBER_LOSSES
from numsft.losses.table import with_table
from numsft.objective import Objective
from numsft.recipe_arguments import split_arguments
from numsft.recipes import load_recipe

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def block(word):
    (found,) = [text for text in BLOCKS if word in text]
    return found


PAGES = [README, README.parent / "studies" / "README.md", *sorted((README.parent / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name + "/" + page.name)
def test_every_file_that_a_page_links_to_or_shows_is_there(page):
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    missing = [name for name in targets if "://" not in name and not (page.parent / name).exists()]
    assert missing == []


def commands():
    """Every command of the package that a page shows with its arguments."""
    found = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for line in re.findall(r"-m (numsft[\w.]* [^`\n]+)", text):
            words = shlex.split(line.partition(" #")[0].partition(" && ")[0])
            if len(words) > 1 and words[1] not in ("STUDY.yaml", "FOLDER"):
                found.add(tuple(words))
    return sorted(found)


class Read(Exception):
    """The command line was read."""


@pytest.mark.parametrize("module, arguments", [(words[0], words[1:]) for words in commands()])
def test_every_command_on_a_page_can_be_read(module, arguments, monkeypatch):
    monkeypatch.chdir(README.parent)
    if module == "numsft.run":
        path, overrides, _ = split_arguments(list(arguments))
        assert load_recipe(path, overrides)
        return

    def read(*args, parse=Parser.parse_known_args, **kwargs):
        raise Read(parse(*args, **kwargs))

    monkeypatch.setattr(Parser, "parse_known_args", read)
    main = importlib.import_module(f"{module}.__main__").main
    with pytest.raises(Read) as found:
        main(list(arguments))
    _, unknown = found.value.args[0]
    assert unknown == []


def test_the_table_of_losses_is_in_step_with_the_code():
    text = README.read_text(encoding="utf-8")
    assert text == with_table(text), "run `python -m numsft.losses.table README.md`"


def test_the_quickstarts_output_is_the_one_in_its_results():
    study = script_module(README.parent / "studies" / "quickstart.py")
    results = json.loads(study.RESULTS.read_text(encoding="utf-8"))
    text = README.read_text(encoding="utf-8")
    assert text == study.with_output(text, results), "run `python studies/quickstart.py`"


def test_the_quickstart_improved_the_model_on_every_seed():
    runs = json.loads((README.parent / "studies" / "quickstart.json").read_text(encoding="utf-8"))["runs"]
    assert len({run["seed"] for run in runs}) >= 3
    for run in runs:
        assert run["exact match"]["after"] >= run["exact match"]["before"] + 10, run["seed"]
        assert run["log-MAE"]["after"] < run["log-MAE"]["before"], run["seed"]


def test_the_heads_figures_are_the_ones_in_its_results():
    script = script_module(README.parent / "benchmarks" / "readme.py")
    text = README.read_text(encoding="utf-8")
    assert text == script.with_figures(text), "run `python benchmarks/readme.py`"


def test_the_two_changed_names_train(tmp_path):
    model = tmp_path / "model"
    tiny_llama(104).save_pretrained(model)
    tiny_tokenizer().save_pretrained(model)
    names = {"MODEL": str(model), "OUTPUT": str(tmp_path / "out")}
    exec(block("NumSFTTrainer("), names)
    assert names["trainer"].state.log_history[-1]["train_loss"] > 0


def test_the_number_loss_of_a_loop_of_ones_own_runs():
    tokenizer, model = tiny_tokenizer(), tiny_llama(104)
    rows = sums_dataset(2)
    ids = tokenizer(
        [p + c for p, c in zip(rows["prompt"], rows["completion"], strict=True)],
        padding=True,
        return_tensors="pt",
    )
    labels = ids["input_ids"].masked_fill(ids["attention_mask"] == 0, -100)
    names = {"tokenizer": tokenizer, "labels": labels}
    names["outputs"] = model(input_ids=ids["input_ids"], labels=labels)
    exec(block("number_loss(outputs.logits"), names)
    names["loss"].backward()
    assert names["loss"] > names["outputs"].loss


def test_the_example_of_a_new_loss_is_a_working_loss(monkeypatch):
    module = types.ModuleType("readme_example")
    monkeypatch.setitem(sys.modules, "readme_example", module)
    exec(block("class Huberised"), module.__dict__)
    monkeypatch.setitem(NUMBER_LOSSES, "huberised", module.Huberised)
    objective = Objective.build("ce", "huberised", number_loss_kwargs={"delta": 2.0})
    assert objective.weight == 0.3 and objective.number_loss.delta == 2.0
