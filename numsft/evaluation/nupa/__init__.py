"""NUPA-style number tasks: generated on the spot, seeded, with exact answers, train and test disjoint.

The task list, lengths and metrics follow the facts published with "Number Cookbook" (Yang et al., 2024); the
code is independent of theirs. `TASKS` holds every representation × task combination, `generate` draws rows of
them.
"""

from numsft.evaluation.nupa.generate import RANGES, generate, lengths_of, range_of, split_of
from numsft.evaluation.nupa.metrics import digit_match, dlength, exact_match, extract_answer
from numsft.evaluation.nupa.tasks import TASKS, Task

__all__ = [
    "RANGES",
    "TASKS",
    "Task",
    "digit_match",
    "dlength",
    "exact_match",
    "extract_answer",
    "generate",
    "lengths_of",
    "range_of",
    "split_of",
]
