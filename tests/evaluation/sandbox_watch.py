"""What the sandbox tests look at from outside: the processes that descend from this one."""

import ctypes
import os
from pathlib import Path

from numsft.evaluation.sandbox.isolation import isolation
from numsft.evaluation.sandbox.plan import Plan

PR_SET_CHILD_SUBREAPER = 36


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


def without_namespaces() -> Plan:
    """The plan of a machine, or a container, that refuses namespaces."""
    best = isolation().plan
    return Plan("", best.landlock, best.seccomp, may_fork=not best.seccomp)
