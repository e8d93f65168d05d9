"""The files of `accelerate_configs/` through accelerate's own loader, launcher and plugins."""

import os
import re
import warnings
from pathlib import Path

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.launch import (
    prepare_deepspeed_cmd_env,
    prepare_multi_gpu_env,
    prepare_simple_launcher_cmd_env,
)

FOLDER = Path(__file__).parent.parent / "accelerate_configs"
FILES = {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}
PLACES = {  # distributed type, processes, precision
    "cpu": ("NO", 1, "no"),
    "single_gpu": ("NO", 1, "bf16"),
    "ddp": ("MULTI_GPU", 8, "bf16"),
    "fsdp2": ("FSDP", 8, "bf16"),
    "zero2": ("DEEPSPEED", 8, "bf16"),
    "zero3": ("DEEPSPEED", 8, "bf16"),
    "multi_node_fsdp2": ("FSDP", 16, "bf16"),
}


def launch_arguments(path, *flags):
    parser = launch_command_parser()
    arguments = parser.parse_args(["--config_file", str(path), *flags, "-m", "numsft.run", "recipe.yaml"])
    return _validate_launch_command(arguments)[0]


def test_every_file_that_is_promised_is_there():
    assert FILES.keys() == PLACES.keys()


@pytest.mark.parametrize("name", PLACES)
def test_accelerate_loads_the_file_as_it_is_meant(name):
    loaded = load_config_from_file(str(FILES[name]))
    distributed, processes, precision = PLACES[name]
    assert (loaded.distributed_type.value, loaded.num_processes, loaded.mixed_precision) == (
        distributed,
        processes,
        precision,
    )
    assert loaded.use_cpu == (name == "cpu")


@pytest.mark.parametrize("name", PLACES)
def test_the_launcher_accepts_the_file(name, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        arguments = launch_arguments(FILES[name])
        if arguments.use_deepspeed:
            arguments.deepspeed_fields_from_accelerate_config = ""
            environment = prepare_deepspeed_cmd_env(arguments)[1]
        elif arguments.use_fsdp or arguments.multi_gpu:
            arguments.main_process_port = arguments.main_process_port and 0
            environment = prepare_multi_gpu_env(arguments)
        else:
            environment = prepare_simple_launcher_cmd_env(arguments)[1]
    assert environment["ACCELERATE_MIXED_PRECISION"] == PLACES[name][2]
    if arguments.use_deepspeed:
        # anything but `auto` must equal the recipe's, or transformers refuses the run
        assert environment["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == "auto"
        assert environment["ACCELERATE_DEEPSPEED_ZERO_STAGE"] == name[-1]


@pytest.mark.parametrize("name", ["fsdp2", "multi_node_fsdp2"])
def test_fsdp2_saves_whole_models_and_leaves_checkpointing_to_the_recipe(name, monkeypatch):
    arguments = launch_arguments(FILES[name])
    arguments.main_process_port = 0
    for key, value in prepare_multi_gpu_env(arguments).items():
        if key not in os.environ:
            monkeypatch.setenv(key, value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plugin = FullyShardedDataParallelPlugin()
    assert plugin.fsdp_version == 2
    assert plugin.reshard_after_forward is True
    assert "FULL_STATE_DICT" in str(plugin.state_dict_type)
    assert plugin.auto_wrap_policy.__name__ == "transformer_auto_wrap_policy"
    # transformers refuses FSDP's own beside the recipe's
    assert not plugin.activation_checkpointing


def test_a_second_machine_takes_the_same_file():
    flags = ["--machine_rank", "1", "--main_process_ip", "192.0.2.1"]
    arguments = launch_arguments(FILES["multi_node_fsdp2"], *flags)
    assert (arguments.machine_rank, arguments.main_process_ip, arguments.num_machines) == (1, "192.0.2.1", 2)


@pytest.mark.parametrize("name", PLACES)
def test_the_first_line_is_the_launch_line(name):
    text = FILES[name].read_text()
    first = text.splitlines()[0]
    assert re.match(rf"# accelerate launch --config_file accelerate_configs/{name}\.yaml ", first)
    assert re.search(r"-m numsft\.run recipes/[\w.]+\.yaml$", first)
    parser = launch_command_parser()
    parsed = parser.parse_args(first.removeprefix("# accelerate launch ").split())
    assert parsed.module and parsed.training_script == "numsft.run"
    assert "distributed_type" in yaml.safe_load(text)
