"""Prints the folder of the tasks, for lm-eval's `--include_path`."""

from numsft.evaluation.lm_eval_tasks import folder

print(folder())
