"""The command line: what a user types, what is printed and written, and how mistakes are answered."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from peft import PeftModel
from tiny import tiny_llama, tiny_tokenizer
from transformers import AutoModelForCausalLM

from numsft.run import main


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny_llama(vocab_size=104).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def recipe(tmp_path, model_folder):
    """A recipe file made from keys, on the tiny model and number tasks."""

    def write(name="recipe.yaml", **keys):
        defaults = dict(
            model_name_or_path=str(model_folder),
            dataset="nupa",
            nupa_tasks=["integer_add"],
            nupa_digits=[1, 2],
            nupa_size=64,
            output_dir=str(tmp_path / "out"),
            use_peft=True,
            lora_target_modules="all-linear",
            max_steps=3,
            per_device_train_batch_size=4,
            activation_checkpointing=False,
            logging_steps=1,
            save_strategy="no",
            disable_tqdm=True,
            seed=0,
        )
        path = tmp_path / name
        path.write_text(yaml.safe_dump({**defaults, **keys}), encoding="utf-8")
        return str(path)

    return write


def test_a_run_leaves_adapter_recipe_card_and_state(recipe, tmp_path, capsys, model_folder):
    assert main([recipe(before_after=8), "--learning_rate", "1e-2"]) == 0
    out = tmp_path / "out"
    for name in (
        "adapter_model.safetensors",
        "adapter_config.json",
        "resolved.yaml",
        "README.md",
        "trainer_state.json",
    ):
        assert (out / name).is_file(), name
    printed = capsys.readouterr().out
    assert "train_runtime" in printed
    lines = printed.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("held-out items (8)"))
    header, _, exact, log_mae = lines[start : start + 4]
    assert "before" in header and "after" in header
    assert exact.startswith("exact match") and log_mae.startswith("log-MAE")
    resolved = yaml.safe_load((out / "resolved.yaml").read_text())
    assert resolved["learning_rate"] == 1e-2 and resolved["number_loss"] == "del"
    card = (out / "README.md").read_text()
    assert "number loss: `del(" in card and "exact match" in card and "learning_rate: 0.01" in card
    history = json.loads((out / "trainer_state.json").read_text())["log_history"]
    assert [entry["step"] for entry in history if "number_loss" in entry] == [1, 2, 3]
    base = AutoModelForCausalLM.from_pretrained(model_folder)
    adapted = PeftModel.from_pretrained(base, out)
    assert json.loads((out / "adapter_config.json").read_text())["base_model_name_or_path"] == str(
        model_folder
    )
    assert any(p.abs().max() > 0 for n, p in adapted.named_parameters() if "lora_B" in n)


def test_the_resolved_recipe_runs_again_to_the_same_losses(recipe, tmp_path):
    assert main([recipe(number_loss="ntl_was", number_loss_kwargs={"power": 2})]) == 0
    again = str(tmp_path / "again")
    assert main([str(tmp_path / "out" / "resolved.yaml"), "--output_dir", again]) == 0
    losses = [
        [
            e["loss"]
            for e in json.loads((Path(f) / "trainer_state.json").read_text())["log_history"]
            if "loss" in e
        ]
        for f in (tmp_path / "out", again)
    ]
    assert losses[0] == losses[1] and len(losses[0]) == 3


def test_a_merged_model_gives_the_adapters_logits(recipe, tmp_path, model_folder):
    assert main([recipe(merge=True, learning_rate=1e-2)]) == 0
    ids = torch.tensor([tiny_tokenizer()("12+3=")["input_ids"]])
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model_folder), tmp_path / "out")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "out" / "merged")
    base = AutoModelForCausalLM.from_pretrained(model_folder)
    torch.testing.assert_close(merged(ids).logits, adapted(ids).logits, rtol=1e-4, atol=1e-5)
    assert (merged(ids).logits - base(ids).logits).abs().max() > 1e-4


def test_the_base_an_adapter_names_is_the_recipes(recipe, tmp_path):
    path = recipe(base_model_id="somebody/some-model", save_strategy="steps", save_steps=3)
    # Without a network, PEFT's look-up of that name would warn.
    done = run_command("-W", "error::UserWarning:peft", "-m", "numsft.run", path)
    assert done.returncode == 0, done.stderr[-2000:]
    for folder in (tmp_path / "out", tmp_path / "out" / "checkpoint-3"):
        config = json.loads((folder / "adapter_config.json").read_text())
        assert config["base_model_name_or_path"] == "somebody/some-model"
        assert "base_model: somebody/some-model" in (folder / "README.md").read_text()


def test_full_fine_tuning_saves_a_model_that_loads(recipe, tmp_path):
    assert main([recipe(use_peft=False)]) == 0
    AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert not (tmp_path / "out" / "adapter_config.json").exists()


def test_a_dry_run_describes_everything_and_writes_nothing(recipe, tmp_path, capsys):
    before = sorted(tmp_path.rglob("*"))
    path = recipe(eval_size=8, lora_modules_to_save=["lm_head"])
    before = sorted(tmp_path.rglob("*"))
    assert (
        main([path, "--dry_run", "--number_reduction", "reference", "--gradient_accumulation_steps", "4"])
        == 0
    )
    assert sorted(tmp_path.rglob("*")) == before
    out = capsys.readouterr().out
    document = yaml.safe_load(out)
    assert document["number_reduction"] == "reference" and document["output_dir"] == str(tmp_path / "out")
    report = [line for line in out.splitlines() if line.startswith("# ")]
    for words in (
        "attention: sdpa",
        "trainable parameters",
        "adapted modules: down_proj x2",
        "number vocabulary: digit, 10 tokens",
        "0.1 in class-mean units",
        "0.01 x 4 accumulation steps x 1 processes = 0.04 (class-mean units), 0.004 (class-sum units)",
    ):
        assert any(words in line for line in report), words
    assert all(line.startswith("# ") or ":" in line for line in out.splitlines() if line.strip())


def test_the_stdout_of_a_dry_run_is_one_yaml_document_whatever_libraries_print(recipe, tmp_path):
    """deepspeed, where it is installed, logs on stdout; so might any tokenizer or model code."""
    noisy = tmp_path / "noisy.py"
    noisy.write_text(
        "import sys\nfrom numsft import data, run\ninner = data.load_datasets\n"
        "def load_datasets(*args, **options):\n    print('[noise')\n    return inner(*args, **options)\n"
        "data.load_datasets = load_datasets\nsys.exit(run.main())\n"
    )
    done = run_command(str(noisy), recipe(), "--dry_run")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("model_name_or_path: ")
    assert yaml.safe_load(done.stdout)["output_dir"] == str(tmp_path / "out")
    assert "[noise" in done.stderr


def mistake(capsys, arguments):
    """Run a command that must be refused; return its one message."""
    status = main(arguments)
    captured = capsys.readouterr()
    assert status == 2, captured.err
    message = [line for line in captured.err.splitlines() if line.startswith("error:") or "Traceback" in line]
    assert len(message) == 1 and message[0].startswith("error: ")
    assert len(captured.err.split("error: ")[1].splitlines()) <= 4 and len(message[0]) <= 907
    return message[0]


MISTAKES = {
    "unknown key": (dict(learning_rat=1e-5), [], "learning_rate"),
    "unknown nested key": (dict(place_weighting_kwargs={"betta": 1.0}), [], "beta"),
    "wrong type": (dict(learning_rate="fast"), [], "learning_rate"),
    "unknown loss": (dict(number_loss="dell"), [], "did you mean 'del'"),
    "unknown option": (dict(number_loss_kwargs={"gama": 1}), [], "gama"),
    "option out of range": (dict(number_loss="dist2", number_loss_kwargs={"tau": 0}), [], "tau"),
    "negative weight": (dict(number_loss_weight=-1), [], "number_loss_weight"),
    "unknown place weighting": (dict(place_weighting="floaty"), [], "float"),
    "lm_head in LoRA": (
        dict(lora_target_modules=["q_proj", "lm_head"]),
        [],
        "lora_modules_to_save: [lm_head]",
    ),
    "missing extends": (dict(extends="nowhere.yaml"), [], "nowhere.yaml"),
    "missing data file": (dict(dataset="nowhere.jsonl"), [], "nowhere.jsonl"),
    "missing model": (dict(model_name_or_path="./nowhere"), [], "nowhere"),
    "missing package": (
        dict(model_name_or_path="package:no_such_package"),
        [],
        "pip install no-such-package",
    ),
    "no model": (dict(model_name_or_path=None), [], "model_name_or_path"),
    "no dataset": (dict(dataset=None), [], "dataset"),
    "both flags": (
        {},
        ["--overwrite_output_dir", "--resume_from_checkpoint", "true"],
        "--resume_from_checkpoint",
    ),
    "estimate without dry run": ({}, ["--accelerate_config", "x.yaml"], "--dry_run"),
    "unknown flag": ({}, ["--learning_rat", "1e-5"], "learning_rate"),
    "label smoothing": (dict(label_smoothing_factor=0.1), [], "label_smoothing_factor"),
    "prompt too long": (dict(max_length=2), [], "max_length"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence_and_nothing_is_written(name, recipe, tmp_path, capsys):
    keys, arguments, words = MISTAKES[name]
    path = recipe(**keys)
    before = sorted(tmp_path.rglob("*"))
    assert words in mistake(capsys, [path, *arguments])
    assert sorted(tmp_path.rglob("*")) == before


def test_columns_that_do_not_fit_are_named(recipe, tmp_path, capsys):
    # open-r1#454: `KeyError: 'text'`
    data = tmp_path / "rows.jsonl"
    data.write_text('{"frage": "1+1", "antwort": "2"}\n')
    message = mistake(capsys, [recipe(dataset=str(data))])
    assert "frage" in message and "antwort" in message and "prompt_column" in message


def test_a_tokenizer_without_digits_is_refused_before_the_model_loads(recipe, tmp_path, capsys, model_folder):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.WordLevel({"<unk>": 0, "</s>": 1, "a": 2}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    folder = tmp_path / "wordy"
    PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", eos_token="</s>").save_pretrained(
        folder
    )
    (folder / "config.json").write_text((model_folder / "config.json").read_text())
    assert "no number tokens" in mistake(capsys, [recipe(model_name_or_path=str(folder))])


def test_a_folder_with_checkpoints_asks_what_to_do(recipe, tmp_path, capsys):
    path = recipe(save_strategy="steps", save_steps=1)
    assert main([path]) == 0
    capsys.readouterr()
    message = mistake(capsys, [path])
    assert "--resume_from_checkpoint true" in message and "--overwrite_output_dir" in message
    (tmp_path / "out" / "notes.txt").write_text("mine")
    assert main([path, "--overwrite_output_dir", "--max_steps", "1"]) == 0
    assert sorted(p.name for p in (tmp_path / "out").glob("checkpoint-*")) == ["checkpoint-1"]
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


def test_a_resumed_run_continues_and_a_changed_objective_is_refused(recipe, tmp_path, capsys):
    path = recipe(save_strategy="steps", save_steps=1, max_steps=2, lr_scheduler_type="constant")
    assert main([path]) == 0
    capsys.readouterr()
    # transformers#18070: a resumed run used to take other settings without a word.
    message = mistake(capsys, [path, "--resume_from_checkpoint", "true", "--number_loss", "ntl_was"])
    assert "number_loss" in message and "ntl_was" in message
    assert main([path, "--resume_from_checkpoint", "true", "--max_steps", "4"]) == 0
    history = json.loads((tmp_path / "out" / "trainer_state.json").read_text())["log_history"]
    assert [entry["step"] for entry in history if "loss" in entry] == [1, 2, 3, 4]


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(recipe, tmp_path, capsys, caplog):
    path = recipe(save_strategy="steps", save_steps=1, max_steps=3)
    assert main([path]) == 0
    weights = tmp_path / "out" / "checkpoint-3" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert main([path, "--resume_from_checkpoint", "true"]) == 0
    assert "checkpoint-3 is damaged (adapter_model.safetensors is cut short)" in caplog.text


def test_resume_without_a_checkpoint_starts_and_says_so(recipe, tmp_path, caplog):
    assert main([recipe(), "--resume_from_checkpoint", "true"]) == 0
    assert "starting from the beginning" in caplog.text


def test_a_non_finite_loss_is_one_message_and_status_1(recipe, tmp_path, capsys):
    # full fine-tuning at an absurd rate: the second step's loss is NaN
    path = recipe(
        use_peft=False, learning_rate=1e30, optim="sgd", max_grad_norm=0, save_strategy="steps", save_steps=1
    )
    assert main([path]) == 1
    message = capsys.readouterr().err.split("error: ")[1]
    assert "is not finite" in message and "step 2" in message and len(message.splitlines()) <= 4
    assert (tmp_path / "out" / "checkpoint-1").is_dir()


def run_command(*arguments):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        env=os.environ,
    )


def test_a_step_raises_no_deprecation_warning(recipe):
    done = run_command(
        "-W",
        "error::FutureWarning",
        "-W",
        "error::DeprecationWarning",
        "-m",
        "numsft.run",
        recipe(max_steps=1),
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_accelerate_launch_shows_the_message_above_its_own_trace(recipe):
    launched = run_command(
        "-m",
        "accelerate.commands.launch",
        "--num_processes",
        "1",
        "--cpu",
        "-m",
        "numsft.run",
        recipe(learning_rat=1),
    )
    assert launched.returncode != 0
    assert re.search(r"^error: .*learning_rate", launched.stderr, re.MULTILINE)


def test_help_lists_keys_and_losses(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    printed = capsys.readouterr().out
    assert "number_loss" in printed and "ntl_was" in printed and "--dry_run" in printed
