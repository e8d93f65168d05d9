"""`NumSFTConfig` settles what TRL and transformers warn about or refuse, and stands in for `SFTConfig`."""

import dataclasses
import json
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from trl import ModelConfig, SFTConfig, TrlParser

from numsft.config import DataConfig, NumSFTConfig
from numsft.errors import UserError
from numsft.losses.base import NumberLoss, TokenLoss

on_cpu = pytest.mark.skipif(torch.accelerator.is_available(), reason="about machines without an accelerator")


@dataclass(frozen=True)
class Quadratic(NumberLoss):
    name: ClassVar[str] = "quadratic"
    gamma: float = 2.0
    table: torch.Tensor | None = None


@dataclass(frozen=True)
class HalfCE(TokenLoss):
    name: ClassVar[str] = "half_ce"
    eta: float = 0.5


def config(**settings):
    return NumSFTConfig(output_dir="unused", **settings)


def test_construction_raises_no_warning():
    code = """
from numsft import NumSFTConfig
for settings in (
    {},
    {"use_liger_kernel": True},
    {"gradient_checkpointing": False, "gradient_checkpointing_kwargs": {"use_reentrant": False}},
    {"activation_checkpointing": True},
    {"loss_type": "dft"},
):
    NumSFTConfig(output_dir="unused", **settings)
"""
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=root
    )
    assert done.returncode == 0, done.stderr


def test_gradient_checkpointing_false_wins():
    assert config().activation_checkpointing is True  # TRL's default
    assert config(gradient_checkpointing=False).activation_checkpointing is False
    kwargs = {"use_reentrant": False}
    assert config(gradient_checkpointing_kwargs=kwargs).activation_checkpointing_kwargs == kwargs
    both = config(gradient_checkpointing=False, activation_checkpointing=True)
    assert both.activation_checkpointing is True


@on_cpu
def test_without_an_accelerator_training_is_in_float32_on_the_cpu():
    settled = config()
    assert (settled.use_cpu, settled.bf16, settled.mixed_precision) == (True, False, "no")


@on_cpu
def test_unsupported_half_precision_falls_back_in_one_line(caplog):
    assert config(bf16=True).bf16 is False
    assert config(fp16=True).fp16 is False
    assert [record.getMessage().count("\n") for record in caplog.records] == [0, 0]
    assert "bf16" in caplog.records[0].getMessage() and "float32" in caplog.records[0].getMessage()


def test_explicit_cpu_keeps_the_bf16_that_was_asked_for():
    assert config(use_cpu=True, bf16=True).bf16 is True
    assert config(use_cpu=True).bf16 is False


def test_loss_type_dft_is_the_token_loss_dft():
    settled = config(loss_type="dft")
    assert (settled.token_loss, settled.loss_type) == ("dft", "nll")
    assert config(loss_type="dft", token_loss="dft").token_loss == "dft"


@pytest.mark.parametrize("token_loss", ["ce", "mixce", HalfCE()])
def test_loss_type_dft_beside_another_token_loss_is_refused(token_loss):
    with pytest.raises(UserError, match="loss_type is 'dft' and token_loss is"):
        config(loss_type="dft", token_loss=token_loss)


def test_label_smoothing_is_refused_in_one_sentence():
    with pytest.raises(UserError, match=r"label_smoothing_factor is 0\.1"):
        config(label_smoothing_factor=0.1)


def test_chunk_below_one_token_is_refused():
    with pytest.raises(UserError, match="head_chunk_size is 0"):
        config(head_chunk_size=0)


def test_liger_wish_is_kept_for_the_trainer():
    settled = config(use_liger_kernel=True)
    assert (settled.liger_layer_kernels, settled.use_liger_kernel) == (True, False)
    assert dataclasses.replace(settled, seed=1).liger_layer_kernels is True
    assert config().liger_layer_kernels is False


def test_defaults_are_the_published_interface():
    settled = config()
    assert (settled.token_loss, settled.number_loss, settled.number_reduction) == ("ce", "del", "digits")
    assert settled.report_to == []
    assert settled.token_loss_kwargs is settled.number_loss_kwargs is settled.place_weighting_kwargs is None
    assert settled.number_loss_weight is settled.place_weighting is settled.head_chunk_size is None
    assert config(number_loss=None).number_loss == "none"


def test_losses_given_as_instances_serialise_as_name_and_options():
    settled = config(number_loss=Quadratic(gamma=3.0, table=torch.ones(1)), token_loss=HalfCE())
    settings = json.loads(settled.to_json_string())
    assert settings["number_loss"] == "quadratic" and settings["token_loss"] == "half_ce"
    assert settings["number_loss_kwargs"]["gamma"] == 3.0
    assert settings["token_loss_kwargs"] == {"eta": 0.5}
    assert isinstance(settled.number_loss, Quadratic)


def test_copies_are_equal():
    settled = config(number_loss_kwargs={"gamma": 2}, loss_type="dft")
    assert dataclasses.replace(settled) == settled
    assert pickle.loads(pickle.dumps(settled)) == settled
    assert type(config().token_loss) is str


def test_it_stands_in_for_sftconfig_on_a_trl_command_line():
    parser = TrlParser((NumSFTConfig, ModelConfig, DataConfig))
    arguments = ["--output_dir", "unused", "--loss_type", "dft", "--number_loss_kwargs", '{"gamma": 2}']
    settled, _, _ = parser.parse_args_and_config(arguments)
    assert settled.token_loss == "dft" and settled.number_loss_kwargs == {"gamma": 2}
    assert "--number_reduction" in parser.format_help()


def test_every_own_field_has_a_help_text():
    inherited = {field.name for field in dataclasses.fields(SFTConfig)}
    own = [field for field in dataclasses.fields(NumSFTConfig) if field.name not in inherited]
    assert len(own) >= 11
    assert [
        field.name for field in (*own, *dataclasses.fields(DataConfig)) if not field.metadata.get("help")
    ] == []


@pytest.mark.parametrize(
    "settings",
    [
        {"nupa_digits": [4]},
        {"nupa_digits": [4, 1]},
        {"nupa_digits": [0, 1]},
        {"eval_size": -1},
        {"eval_size": 1.5},
        {"max_samples": 0},
        {"before_after": -1},
    ],
)
def test_sizes_that_no_data_has_are_refused(settings):
    (key,) = settings
    with pytest.raises(UserError, match=key):
        DataConfig(**settings)
