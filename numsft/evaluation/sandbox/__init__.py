"""Model-written programs, each run in a fresh interpreter that can harm nothing but its own row."""

from numsft.evaluation.sandbox.isolation import Isolation, isolation
from numsft.evaluation.sandbox.process import Outcome
from numsft.evaluation.sandbox.run import run_programs

__all__ = ["Isolation", "Outcome", "isolation", "run_programs"]
