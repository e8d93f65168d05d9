r"""The benchmarks as tasks of lm-eval: a folder for its `--include_path`.

lm_eval --include_path $(python -m numsft.evaluation.lm_eval_tasks) --tasks numsft_gsm8k \
    --model hf --model_args pretrained=MODEL --confirm_run_unsafe_code

`numsft_NAME` scores by the strict rules, `numsft_NAME_paper` by the published ones; `numsft` and
`numsft_paper` are the seven benchmarks of the paper, their mean the paper's mACC.
"""

from __future__ import annotations

from pathlib import Path


def folder() -> Path:
    """Return what `--include_path` and `TaskManager(include_path=...)` take."""
    return Path(__file__).resolve().parent
