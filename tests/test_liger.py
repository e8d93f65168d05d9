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
