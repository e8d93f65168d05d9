"""Liger's gradient kernel inside the head, run by Triton's interpreter on toy sizes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECK = """
import torch
from numsft.liger import has_gradient_kernel
from numsft import head_pass as head
from numsft.objective import Objective
from test_head import H, T, V, assert_same, both, make_batch

assert has_gradient_kernel(torch.device("cpu"))
calls = []
kernel = head.cross_entropy_gradient_
head.cross_entropy_gradient_ = lambda *args: (calls.append(1), kernel(*args))
for token_loss in ("ce", "dft"):
    for number_loss in ("del", "ntl_mse", "gaussian_smoothing"):
        ours, oracle = both(make_batch(), Objective.build(token_loss, number_loss))
        assert_same(ours, oracle, 1e-5)
assert len(calls) == 6 * 4, calls
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Triton is a Linux package")
def test_the_kernels_gradient_equals_full_logits():
    tests = Path(__file__).parent
    path = os.pathsep.join([str(tests.parent), str(tests)])
    done = subprocess.run(
        [sys.executable, "-c", CHECK],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_layer_kernels_are_left_alone_without_a_gpu():
    import torch
    from tiny import tiny_llama

    from numsft.liger import use_layer_kernels

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    model = tiny_llama()
    before = [type(module) for module in model.modules()]
    assert use_layer_kernels(model) is False
    assert [type(module) for module in model.modules()] == before


def test_layer_kernels_are_asked_for_on_the_instance_without_cross_entropies(monkeypatch):
    import liger_kernel.transformers
    import torch
    from tiny import tiny_llama

    from numsft.liger import use_layer_kernels

    asked = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        liger_kernel.transformers, "_apply_liger_kernel_to_instance", lambda **options: asked.append(options)
    )
    model = tiny_llama()
    assert use_layer_kernels(model)
    assert asked == [{"model": model, "cross_entropy": False, "fused_linear_cross_entropy": False}]


INSTANCE = """
import torch
from torch import nn
from tiny import tiny_llama
from transformers.models.llama import modeling_llama
from numsft import liger
from numsft.trl_bridge import attach_head

torch.cuda.is_available = lambda: True
model, other = tiny_llama(), tiny_llama()
attach_head(model)
forward, class_forward = model.forward, modeling_llama.LlamaForCausalLM.forward
cross_entropy = nn.functional.cross_entropy
assert liger.use_layer_kernels(model)
assert "Liger" in repr(model.model.norm) and "Liger" not in repr(other.model.norm)
assert "iger" in model.model.layers[0].mlp.forward.__qualname__
assert model.forward is forward, "the head's forward must stay"
assert modeling_llama.LlamaForCausalLM.forward is class_forward
assert nn.functional.cross_entropy is cross_entropy
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Triton is a Linux package")
def test_the_real_layer_kernels_leave_the_head_and_the_cross_entropy_alone():
    tests = Path(__file__).parent
    path = os.pathsep.join([str(tests.parent), str(tests)])
    done = subprocess.run(
        [sys.executable, "-c", INSTANCE],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_layer_kernels_are_left_off_with_the_reason_where_liger_is_absent(tmp_path, monkeypatch, caplog):
    import importlib.util

    import torch
    from helpers import tiny_trainer

    tiny_trainer(tmp_path, liger_layer_kernels=True)
    assert "left off: there is no GPU here" in caplog.text
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "liger_kernel" else find_spec(name)
    )
    from numsft.liger import use_layer_kernels, why_no_layer_kernels

    assert use_layer_kernels(object()) is False
    assert 'pip install "numsft[gpu]"' in str(why_no_layer_kernels())
