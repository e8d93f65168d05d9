"""QLoRA's contract with bitsandbytes, which has no GPU to run on here: what is passed on, what is refused."""

import importlib.util

import pytest
import torch
from tiny import tiny_llama, tiny_tokenizer
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl import ModelConfig

from numsft import NumSFTConfig
from numsft.errors import UserError
from numsft.quantization import quantization_config
from numsft.recipes import load_recipe
from numsft.run import build


def arguments(**settings) -> ModelConfig:
    return ModelConfig(**{"load_in_4bit": True, "use_peft": True, **settings})


def training(tmp_path, **precision) -> NumSFTConfig:
    return NumSFTConfig(output_dir=str(tmp_path), use_cpu=True, **precision)


@pytest.fixture
def installed(monkeypatch):
    """A machine with a GPU and bitsandbytes, as far as one can ask."""
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: find_spec("torch" if name == "bitsandbytes" else name)
    )
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)


def test_nothing_is_quantised_unasked(tmp_path):
    assert quantization_config(ModelConfig(), training(tmp_path)) is None


@pytest.mark.parametrize(
    ("precision", "dtype", "expected"),
    [
        (dict(bf16=True), "float32", torch.bfloat16),
        (dict(bf16=True), "auto", torch.bfloat16),
        (dict(bf16=False), "bfloat16", torch.bfloat16),
        (dict(bf16=False), "auto", torch.float32),
        (dict(bf16=False), None, torch.float32),
    ],
)
def test_products_are_computed_in_the_runs_precision(tmp_path, installed, precision, dtype, expected):
    config = quantization_config(
        arguments(dtype=dtype, use_bnb_nested_quant=True, bnb_4bit_quant_storage="bfloat16"),
        training(tmp_path, **precision),
    )
    assert isinstance(config, BitsAndBytesConfig)
    assert config.load_in_4bit and config.bnb_4bit_quant_type == "nf4" and config.bnb_4bit_use_double_quant
    assert config.bnb_4bit_compute_dtype == expected
    assert config.bnb_4bit_quant_storage == torch.bfloat16


def test_eight_bits_are_asked_for_alone(tmp_path, installed):
    config = quantization_config(arguments(load_in_4bit=False, load_in_8bit=True), training(tmp_path))
    assert config is not None and config.load_in_8bit and not config.load_in_4bit


def test_full_fine_tuning_of_quantised_weights_is_refused(tmp_path, installed):
    with pytest.raises(UserError, match="load_in_4bit is set without use_peft"):
        quantization_config(arguments(use_peft=False), training(tmp_path))


def test_what_is_missing_is_one_sentence(tmp_path, installed, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"^load_in_4bit needs a GPU and there is none here: .*\.$"):
        quantization_config(arguments(), training(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^load_in_4bit needs the package bitsandbytes.*pip install"):
        quantization_config(arguments(), training(tmp_path))


def test_a_recipe_with_load_in_4bit_passes_the_settings_to_from_pretrained(tmp_path, installed, monkeypatch):
    folder = tmp_path / "model"
    tiny_llama(104).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        f"model_name_or_path: {folder}\noutput_dir: {tmp_path / 'out'}\ndataset: nupa\nnupa_size: 8\n"
        "load_in_4bit: true\nuse_peft: true\nattn_implementation: auto\nbf16: true\nuse_cpu: true\n"
    )
    seen = {}

    class Loaded(Exception):
        pass

    def from_pretrained(path, **options):
        seen.update(options)
        raise Loaded

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", from_pretrained)
    with pytest.raises(Loaded):
        build(load_recipe(str(recipe), {}))
    assert seen["quantization_config"].load_in_4bit
    assert seen["quantization_config"].bnb_4bit_compute_dtype == torch.bfloat16
