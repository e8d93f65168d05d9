"""Each example runs on a tiny model as it stands, and loading needs no numsft."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hub_server import TOKEN, HubServer
from peft import PeftModel
from tiny import tiny_llama, tiny_tokenizer
from transformers import AutoModelForCausalLM

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny_llama(vocab_size=128).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def run(monkeypatch, script, *arguments):
    monkeypatch.setattr(sys, "argv", [str(script), *map(str, arguments)])
    return runpy.run_path(str(script))


@pytest.fixture(scope="module")
def adapter(tmp_path_factory, model_folder):
    """What `trl_two_names.py` writes."""
    folder = tmp_path_factory.mktemp("sums")
    with pytest.MonkeyPatch.context() as patch:
        trainer = run(patch, EXAMPLES / "trl_two_names.py", model_folder, folder, 3)["trainer"]
    assert trainer.state.global_step == 3
    return folder


def load(adapter, **environment):
    """Run `load_adapter.py` where numsft cannot be imported."""
    blocked = (
        "import runpy, sys; sys.modules['numsft'] = None; sys.argv = sys.argv[1:]; "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    return subprocess.run(
        [sys.executable, "-c", blocked, str(EXAMPLES / "load_adapter.py"), str(adapter), "17 + 25 = "],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )


def test_the_two_names_train_an_adapter(adapter, model_folder):
    card = (adapter / "README.md").read_text()
    assert "number loss: `del(" in card
    ids = torch.arange(4, 30)[None]
    base = AutoModelForCausalLM.from_pretrained(model_folder)
    before = base(ids).logits
    after = PeftModel.from_pretrained(base, adapter)(ids).logits
    assert (after - before).abs().max() > 1e-4


def test_with_its_old_names_the_script_is_plain_trl(tmp_path, monkeypatch, model_folder):
    text = (EXAMPLES / "trl_two_names.py").read_text()
    assert len(re.findall("NumSFT", text)) == 4  # the import and the two uses
    plain = text.replace(
        "from numsft import NumSFTConfig, NumSFTTrainer", "from trl import SFTConfig, SFTTrainer"
    )
    plain = plain.replace("NumSFT", "SFT")
    # TRL asks for bf16 where nothing is said, and then for a CPU to be named; numsft settles both.
    plain = plain.replace("output_dir=output_dir,", "output_dir=output_dir, use_cpu=True, bf16=False,")
    script = tmp_path / "plain.py"
    script.write_text(plain)
    trainer = run(monkeypatch, script, model_folder, tmp_path / "out", 1)["trainer"]
    assert type(trainer).__module__.startswith("trl.") and trainer.state.global_step == 1


def test_the_loop_of_ones_own_lowers_the_number_loss(monkeypatch, capsys, model_folder):
    run(monkeypatch, EXAMPLES / "custom_loop.py", model_folder, 30)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("step ")]
    losses = [float(line.split("token loss ")[1].split(",")[0]) for line in lines]
    assert len(losses) == 30 and sum(losses[-5:]) < sum(losses[:5])


def test_the_adapter_loads_without_numsft(adapter):
    done = load(adapter)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("17 + 25 = ")


def test_the_pushed_adapter_loads_without_numsft(adapter, tmp_path):
    with HubServer() as hub:
        environment = dict(
            HF_ENDPOINT=hub.url,
            HF_TOKEN=TOKEN,
            HF_HUB_OFFLINE="0",
            HF_HUB_DISABLE_XET="1",
            HF_HOME=str(tmp_path / "home"),
        )
        pushed = subprocess.run(
            [sys.executable, "-m", "numsft.hub", "push", str(adapter), "--hub_model_id", "somebody/sums"],
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
            timeout=120,
        )
        assert pushed.returncode == 0, pushed.stderr
        done = load("somebody/sums", **environment)
        assert done.returncode == 0, done.stderr
        assert done.stdout == load(adapter).stdout
        assert hub.count("somebody/sums/resolve/.*/adapter_model.safetensors")


def test_the_readme_names_every_example():
    text = (EXAMPLES / "README.md").read_text()
    assert set(re.findall(r"`(\w+\.py)`", text)) == {path.name for path in EXAMPLES.glob("*.py")}
