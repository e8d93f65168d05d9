"""What the sandbox tests share: how a program is run, and what is looked at from outside."""

import ctypes
import functools
import os
from pathlib import Path

from numsft.evaluation.sandbox import Outcome
from numsft.evaluation.sandbox.isolation import isolation, probe
from numsft.evaluation.sandbox.plan import Limits, Plan
from numsft.evaluation.sandbox.run import run_batch

PR_SET_CHILD_SUBREAPER = 36

# A busy machine may need a second for the start alone.
GENEROUS = Limits(wall_seconds=30)
SHORT = Limits(wall_seconds=2)


CALL_X86 = """
import ctypes
if os.uname().machine != "x86_64":
    print("EPERM")
    raise SystemExit
_libc = ctypes.CDLL(None, use_errno=True)
def call(*words):
    if _libc.syscall(*[ctypes.c_long(w) for w in words]) < 0:
        raise OSError(ctypes.get_errno(), "refused")
"""


def adopt_orphans() -> None:
    """From now on a process that a program leaves behind becomes a child of this one, so it can be seen."""
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1)) == 0


def descendants(pid: int | None = None) -> set[int]:
    """All processes below this one, zombies included."""
    found: set[int] = set()
    waiting = [pid or os.getpid()]
    while waiting:
        parent = waiting.pop()
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                new = {int(child) for child in children.read_text().split()}
            except OSError:
                continue
            found |= new
            waiting += new
    return found


@functools.cache
def level_of(plan: Plan) -> str:
    """What the plan's own probe says."""
    return probe(plan).level


def without_namespaces() -> Plan:
    """The plan of a machine, or a container, that refuses namespaces."""
    best = isolation().plan
    return Plan("", best.landlock, best.seccomp, may_fork=not best.seccomp)


def run(program: str, plan, limits: Limits = GENEROUS) -> Outcome:
    return run_batch([program], plan, limits, 1)[0]


def refused(statement: str, plan, setup: str = "") -> str:
    """The error number's name with which a statement fails; fails the test if it does not fail."""
    failure = "except OSError as e:\n    print(errno.errorcode[e.errno])"
    lines = f"import errno, os\n{setup}\ntry:\n    {statement}\n{failure}"
    outcome = run(lines, plan)
    assert outcome.error is None, outcome
    assert outcome.stdout, f"{statement} was not refused"
    return outcome.stdout.strip()
