"""GSM8K with other numbers: does a model that solves a problem still solve it when its numerals change?

An item is remapped only where its annotated solution says without doubt which numeral of the question each
number is. In order: `annotations` and `numerals` read the item, `binding` says what each literal is or
refuses, `draw` finds new values, `validate` and `second` check them, `control` rewrites words instead,
`items` makes the rows, `accuracy` and `errors` judge a model on them.
"""

from numsft.evaluation.remap.accuracy import mcnemar, remap_accuracy, wilson_interval
from numsft.evaluation.remap.binding import Program, bind
from numsft.evaluation.remap.control import control_rewrite
from numsft.evaluation.remap.errors import ErrorReport, check_equations, classify_errors
from numsft.evaluation.remap.items import coverage_table, read_gsm8k, remap, remap_rows
from numsft.evaluation.remap.rejection import REASONS, Rejected
from numsft.evaluation.remap.validate import program_problems, remap_problems

__all__ = [
    "REASONS",
    "ErrorReport",
    "Program",
    "Rejected",
    "bind",
    "check_equations",
    "classify_errors",
    "control_rewrite",
    "coverage_table",
    "mcnemar",
    "program_problems",
    "read_gsm8k",
    "remap",
    "remap_accuracy",
    "remap_problems",
    "remap_rows",
    "wilson_interval",
]
