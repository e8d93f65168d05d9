"""The files of `recipes/`: what they say, that they fit where they are launched, and that they train."""

import io
import json
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import yaml
from accelerate.commands.launch import launch_command_parser
from safetensors.torch import load_file
from stand_ins import ARCHITECTURES, save_stand_in, tiny_qwen, write_rows

from numsft.losses import NUMBER_LOSSES, TOKEN_LOSSES
from numsft.objective import Objective
from numsft.recipe_yaml import plain, read_mapping
from numsft.recipes import load_recipe
from numsft.run import main

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "recipes"
LAUNCHES = sorted(path.stem for path in (ROOT / "accelerate_configs").glob("*.yaml"))
BASES = {  # Hub id, learning rate, prompt template, parameters of the published model
    "codellama7b": ("codellama/CodeLlama-7b-hf", 2e-5, "alpaca", 6_738_546_688),
    "mistral7b": ("mistralai/Mistral-7B-v0.1", 5e-6, "alpaca", 7_241_732_096),
    "deepseekmath7b": ("deepseek-ai/deepseek-math-7b-instruct", 5e-6, "chat", 6_910_365_696),
    "qwen1.5b": ("Qwen/Qwen2.5-1.5B", 5e-6, "alpaca", 1_543_714_304),
    "qwen7b": ("Qwen/Qwen2.5-7B", 5e-6, "alpaca", 7_615_616_512),
}
DEL = [f"{base}_del{method}" for base in BASES for method in ("", "_lora")]
LOSSES = {f"qwen1.5b_{loss}": loss for loss in (*NUMBER_LOSSES, *TOKEN_LOSSES)}
ABLATIONS = {"qwen1.5b_del_noplace": ("del", "none"), "qwen1.5b_ntl_was_float": ("ntl_was", "float")}
TRAINING = sorted({*DEL, *LOSSES, *ABLATIONS})


def text_of(name):
    return (RECIPES / f"{name}.yaml").read_text(encoding="utf-8")


def load(name, *overrides):
    return load_recipe(RECIPES / f"{name}.yaml", overrides)


def base_of(name):
    return next(base for base in BASES if name.startswith(f"{base}_"))


def run_main(*arguments):
    """Status, stdout and stderr of the command, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main([*map(str, arguments)])
    return status, out.getvalue(), err.getvalue()


# --- what the files say -----------------------------------------------------------------------------------


def test_there_is_one_file_for_each_model_and_method_each_loss_and_each_ablation():
    assert {path.stem for path in RECIPES.glob("*.yaml")} == {*TRAINING, "quickstart"}
    assert {path.stem for path in (RECIPES / "base").glob("*.yaml")} == {*BASES, "mathinstruct", "lora"}


@pytest.mark.parametrize("name", TRAINING)
def test_a_recipe_is_a_few_lines_over_the_base(name):
    assert 4 <= len(text_of(name).splitlines()) <= 10
    assert "extends" in read_mapping(RECIPES / f"{name}.yaml")
    assert load(name).training.output_dir == f"outputs/{name}"


@pytest.mark.parametrize("base", BASES)
def test_a_models_file_holds_its_id_its_template_and_its_published_size(base):
    from numsft.memory import ModelShape

    hub_id, learning_rate, template, parameters = BASES[base]
    entries = {key: plain(value) for key, value in read_mapping(RECIPES / "base" / f"{base}.yaml").items()}
    assert entries["model_name_or_path"] == hub_id
    assert entries["learning_rate"] == learning_rate
    assert entries["prompt_template"] == template
    assert ModelShape.from_recipe(entries["shape"]).parameters == pytest.approx(parameters, rel=1e-3)


@pytest.mark.parametrize("name", TRAINING)
def test_the_schedule_is_the_papers(name):
    recipe = load(name)
    training, learning_rate = recipe.training, BASES[base_of(name)][1]
    assert recipe.data.dataset == "TIGER-Lab/MathInstruct" and training.max_length == 1500
    assert training.num_train_epochs == 2 and training.max_steps == -1
    assert training.lr_scheduler_type == "cosine"
    assert training.warmup_steps == 0.03 and training.weight_decay == 0
    assert 8 * training.per_device_train_batch_size * training.gradient_accumulation_steps == 256
    assert recipe.values["bf16"] is True and training.activation_checkpointing is True
    assert recipe.model.attn_implementation == "auto" and training.liger_layer_kernels is True
    assert recipe.model.use_peft == name.endswith("_lora")
    assert training.learning_rate == pytest.approx(learning_rate * (10 if recipe.model.use_peft else 1))
    # Full fine-tuning at such rates is lost in bf16 weights; frozen ones need no more.
    assert recipe.model.dtype == ("bfloat16" if recipe.model.use_peft else "float32")


@pytest.mark.parametrize("name", DEL)
def test_each_model_has_del_with_the_papers_places_and_says_what_the_weight_was_in_effect(name):
    objective = Objective.from_config(load(name).training)
    assert (objective.token_loss.name, objective.number_loss.name) == ("ce", "del")
    assert (objective.weight, objective.place_weighting, objective.reduction) == (0.01, "float", "digits")
    note = text_of(name.removesuffix("_lora"))
    effective = {"codellama7b": "0.1", "mistral7b": "0.1", "deepseekmath7b": "2.56"}
    assert "In effect" in note and effective.get(base_of(name), "1.28") in note


@pytest.mark.parametrize("name", LOSSES)
def test_each_loss_has_a_recipe_with_its_own_weight_and_options(name):
    training, loss = load(name).training, LOSSES[name]
    objective = Objective.from_config(training)
    if loss in TOKEN_LOSSES:
        assert objective.token_loss == TOKEN_LOSSES[loss]() and objective.number_loss is None
        return
    assert objective.token_loss == TOKEN_LOSSES["ce"]()
    assert objective.number_loss == NUMBER_LOSSES[loss]()
    written = {key: plain(value) for key, value in read_mapping(RECIPES / f"{name}.yaml").items()}
    assert written["number_loss_weight"] == objective.weight == NUMBER_LOSSES[loss].default_weight
    said = re.search(r"\b(ours|published|paper's)\b", text_of(name).partition("extends:")[2])
    assert said and (said[0] == "ours") == (NUMBER_LOSSES[loss].weight_source == "ours")


@pytest.mark.parametrize("name", ABLATIONS)
def test_the_ablations_change_the_places_and_nothing_else(name):
    changed, original = load(name).values, load(f"qwen1.5b_{ABLATIONS[name][0]}").values
    assert changed.pop("place_weighting") == ABLATIONS[name][1]
    assert {**changed, "output_dir": ""} == {**original, "output_dir": ""}
    # `none` and `float` are not the defaults already
    assert (
        Objective.from_config(load(f"qwen1.5b_{ABLATIONS[name][0]}").training).place_weighting
        != (ABLATIONS[name][1])
    )


# --- where they are launched ------------------------------------------------------------------------------


def launch_of(name):
    """The accelerate configuration that the first line names, read by accelerate's own parser."""
    first = text_of(name).splitlines()[0]
    assert first.startswith("# accelerate launch ")
    parsed = launch_command_parser().parse_args(shlex.split(first.removeprefix("# accelerate launch ")))
    assert parsed.module and parsed.training_script == "numsft.run"
    (recipe,) = parsed.training_script_args
    assert recipe == f"recipes/{name}.yaml"
    if parsed.config_file is not None:
        assert (ROOT / parsed.config_file).is_file()
    return parsed.config_file


def estimated_total(out):
    (total,) = re.findall(r"^# total +([\d.]+) ", out, re.MULTILINE)
    return float(total)


@pytest.mark.parametrize("name", [*TRAINING, "quickstart"])
def test_the_first_line_launches_the_file_itself(name):
    assert (launch_of(name) is None) == (name == "quickstart")


@pytest.mark.parametrize("name", TRAINING)
def test_the_launch_in_the_first_line_fits_with_the_memory_in_the_second(name):
    second = text_of(name).splitlines()[1]
    gpus, memory = re.match(r"# (\d+) A100-80GB, ([\d.]+) GiB a GPU\.", second).groups()
    config = ROOT / launch_of(name)
    assert yaml.safe_load(config.read_text())["num_processes"] == int(gpus) == 8
    status, out, err = run_main(
        RECIPES / f"{name}.yaml", "--dry_run", "--accelerate_config", config, "--gpu_memory", 80
    )
    assert status == 0, err
    assert estimated_total(out) == pytest.approx(float(memory), rel=0.02, abs=0.06)
    document = yaml.safe_load(out)
    assert document["model_name_or_path"] == BASES[base_of(name)][0]
    assert "not checked: the sizes of" in out and "not checked: tokenizer" in out
    trained, total = (
        int(n.replace(",", "")) for n in re.search(r"trainable.*: (\S+) of (\S+) ", out).groups()
    )
    assert (trained == total) == (not name.endswith("_lora")) and 0 < trained


@pytest.mark.parametrize("name", [name for name in DEL if name.endswith("_lora")])
def test_an_adapter_trains_the_same_rows_a_step_on_one_gpu(name):
    second = text_of(name).splitlines()[1]
    config, flag, steps, memory = re.search(
        r"On one: (\S+\.yaml), (--\w+) (\d+), ([\d.]+) GiB\.$", second
    ).groups()
    arguments = ["--dry_run", "--accelerate_config", ROOT / config, flag, steps]
    status, out, err = run_main(RECIPES / f"{name}.yaml", *arguments)
    assert status == 0, err
    assert estimated_total(out) == pytest.approx(float(memory), rel=0.02, abs=0.06)
    assert int(steps) * load(name).training.per_device_train_batch_size == 256


def changes_in(message):
    """Overrides, configuration and GPUs of the first setting that a refusal names."""
    first = message.partition("the nearest setting that fits is ")[2].partition(" (")[0]
    arguments = []
    for key, value in re.findall(r"`(\w+): ([^`]+)`", first):
        arguments += [f"--{key}", value]
    for config in re.findall(r"`(accelerate_configs/\w+\.yaml)`", first):
        arguments += ["--accelerate_config", str(ROOT / config)]
    for gpus in re.findall(r"(\d+) GPUs", first):
        arguments += ["--gpus", gpus]
    return arguments


@pytest.mark.parametrize("launch", LAUNCHES)
@pytest.mark.parametrize("name", DEL)
def test_each_recipe_under_each_configuration_fits_or_is_told_what_does(name, launch):
    recipe, config = RECIPES / f"{name}.yaml", ROOT / "accelerate_configs" / f"{launch}.yaml"
    status, out, err = run_main(recipe, "--dry_run", "--accelerate_config", config)
    small = name.endswith("_lora") or name.startswith("qwen1.5b") or launch == "cpu"
    sharded = launch in ("fsdp2", "multi_node_fsdp2", "zero2", "zero3")
    assert status == (0 if small or sharded else 2), err
    if status == 0:
        kind = "of the process" if launch == "cpu" else "a GPU"
        assert f"# memory {kind} in GiB, estimated" in out
        assert launch == "cpu" or estimated_total(out) <= 75.2
        return
    assert out == ""
    message = err[err.index("error: ") :]
    assert len(message.splitlines()) == 1 and len(message) <= 907
    nearest = changes_in(message)
    assert "--accelerate_config" in nearest
    status, out, err = run_main(recipe, "--dry_run", *nearest)
    assert status == 0 and estimated_total(out) <= 75.2, err


def test_a_model_on_this_machine_is_estimated_by_its_own_configuration(stand_in):
    config = ROOT / "accelerate_configs" / "single_gpu.yaml"
    arguments = ["--dry_run", "--accelerate_config", config]
    recipe = RECIPES / "mistral7b_del.yaml"
    status, _, _ = run_main(recipe, *arguments)
    assert status == 2  # 7 billion parameters, by the recipe's `shape`
    status, out, err = run_main(recipe, *arguments, "--model_name_or_path", stand_in("mistral7b_del"))
    assert status == 0, err
    assert estimated_total(out) < 2 and "not checked: the sizes of" not in out


@pytest.mark.parametrize("name", ["qwen1.5b_ce", "mistral7b_del_lora"])
def test_a_dry_run_out_of_the_hubs_reach_names_the_checks_it_skips(name):
    status, out, err = run_main(RECIPES / f"{name}.yaml", "--dry_run")
    assert status == 0, err
    hub_id = BASES[base_of(name)][0]
    assert yaml.safe_load(out)["model_name_or_path"] == hub_id
    assert f"# not checked: the sizes of {hub_id}" in out and "# not checked: tokenizer" in out
    assert "trainable" in out and "# memory of the process" in out


@pytest.mark.parametrize("model", ["./nowhere", "somebody/some model"])
def test_a_dry_run_of_a_model_that_is_no_hub_id_is_refused_all_the_same(model):
    status, out, err = run_main(RECIPES / "qwen7b_del.yaml", "--dry_run", "--model_name_or_path", model)
    assert (status, out) == (2, "") and model in err


def test_a_dry_run_without_sizes_is_refused_where_the_model_cannot_be_loaded(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("model_name_or_path: somebody/some-model\ndataset: nupa\n")
    status, out, err = run_main(recipe, "--dry_run")
    assert (status, out) == (2, "") and "cannot load the tokenizer of somebody/some-model" in err


def test_the_commands_of_the_first_lines_are_those_of_the_accelerate_files():
    for launch in LAUNCHES:
        first = (ROOT / "accelerate_configs" / f"{launch}.yaml").read_text().splitlines()[0]
        recipe = re.search(r"recipes/(\S+)\.yaml$", first)[1]
        assert (RECIPES / f"{recipe}.yaml").is_file(), first


# --- that they train --------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Prepared rows go to a cache of the tests' own, also those of the processes started here."""
    import datasets.config

    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", folder)
        patch.setenv("HF_DATASETS_CACHE", str(folder))
        yield


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory):
    """The folder of the tiny model that takes a base's place.

    Qwen's own vocabulary takes ten seconds a run: it is for DEL, and the other losses have a tiny one.
    """
    folders = {}

    def of(name):
        base = base_of(name)
        kind = (base, tiny_qwen if base == "qwen1.5b" and name not in DEL else None)
        if kind not in folders:
            shape = plain(read_mapping(RECIPES / "base" / f"{base}.yaml")["shape"])
            folders[kind] = save_stand_in(base, shape, tmp_path_factory.mktemp(base), kind[1])
        return folders[kind]

    return of


@pytest.fixture(scope="session")
def rows(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("rows") / "mathinstruct.jsonl")


def arguments_for(name, stand_in, rows):
    """The command's arguments for a recipe on its stand-in."""
    small = {
        "model_name_or_path": stand_in(name),
        "dataset": rows,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "max_steps": 3,
        "logging_steps": 1,
    }
    return [
        str(RECIPES / f"{name}.yaml"),
        *(str(word) for key, value in small.items() for word in (f"--{key}", value)),
    ]


def check_dry_run(name, stand_in, rows):
    status, out, err = run_main(*arguments_for(name, stand_in, rows), "--dry_run")
    assert status == 0, err
    vocabulary = load(name).shape["vocabulary"]
    for words in (
        "trainable parameters",
        "attention: sdpa",
        f"columns instruction/output, prompt template '{BASES[base_of(name)][2]}'",
        "batch: 2 x 2",
        "prompt boundary: sound in all",
        "trained exactly once in every untruncated row",
    ):
        assert words in out, out
    if "_lora" in name:
        assert "down_proj x2" in out and "q_proj x2" in out
    if load(name).training.number_loss != "none":
        assert "number vocabulary: digit, 10 tokens" in out
    config = json.loads((stand_in(name) / "config.json").read_text())
    assert config["vocab_size"] == vocabulary


def check_trained(name, folder, stand_in):
    """Three steps had a finite loss and digits each, and moved the weights that they should."""
    state = json.loads((folder / "trainer_state.json").read_text())
    history = [entry for entry in state["log_history"] if "loss" in entry]
    assert [entry["step"] for entry in history] == [1, 2, 3]
    has_number_loss = load(name).training.number_loss != "none"
    for entry in history:
        assert 0 < entry["loss"] < 100 and entry["digits_per_step"] > 0
        assert (entry.get("number_loss", 0) != 0) == has_number_loss
    weights = folder / ("adapter_model.safetensors" if "_lora" in name else "model.safetensors")
    trained = load_file(weights)
    if "_lora" in name:
        assert all(tensor.abs().max() > 0 for key, tensor in trained.items() if "lora_B" in key)
    else:
        before = load_file(stand_in(name) / "model.safetensors")
        assert before.keys() == trained.keys()
        assert all((tensor != before[key]).any() for key, tensor in trained.items())
    resolved = yaml.safe_load((folder / "resolved.yaml").read_text())
    assert "extends" not in resolved and resolved["max_steps"] == 3


IN_PROCESS = [
    "mistral7b_del",
    "deepseekmath7b_del_lora",
    "qwen1.5b_emo",
    "qwen7b_del_lora",
]


@pytest.mark.parametrize(
    "name",
    [name if name in IN_PROCESS else pytest.param(name, marks=pytest.mark.slow) for name in TRAINING],
)
def test_a_recipe_dry_runs_and_trains_on_a_tiny_model_of_its_architecture(name, stand_in, rows, tmp_path):
    check_dry_run(name, stand_in, rows)
    out = tmp_path / "out"
    status, _, err = run_main(*arguments_for(name, stand_in, rows), "--output_dir", out)
    assert status == 0, err
    check_trained(name, out, stand_in)


@pytest.mark.parametrize(
    "name",
    [
        "codellama7b_del",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("mistral7b_del_lora", "deepseekmath7b_del", "qwen1.5b_del", "qwen7b_del")
        ),
    ],
)
def test_the_command_itself_trains_each_architecture(name, stand_in, rows, tmp_path):
    out = tmp_path / "out"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "numsft.run",
            *arguments_for(name, stand_in, rows),
            "--output_dir",
            str(out),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    check_trained(name, out, stand_in)


def test_each_architecture_has_its_stand_in():
    assert ARCHITECTURES.keys() == BASES.keys()
