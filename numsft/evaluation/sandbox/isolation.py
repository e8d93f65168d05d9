"""Which isolation this machine gives: a program tries each thing that no program may do."""

from __future__ import annotations

import ctypes
import errno
import functools
import json
import os
import shutil
import socket
import sys
import tempfile
from dataclasses import dataclass

from numsft.errors import RunError, UserError
from numsft.evaluation.sandbox.inside import landlock, seccomp
from numsft.evaluation.sandbox.interpreter import interpreter
from numsft.evaluation.sandbox.plan import Limits, Plan
from numsft.evaluation.sandbox.process import SCRATCH_MIB, Running, run_one

# Without these a program could change the evaluator's files, state or neighbours: level "none".
ESSENTIAL = ("writes", "network", "signals")


@dataclass(frozen=True)
class Isolation:
    """What programs are kept from on this machine.

    Attributes:
        level: `full` when every part holds, `partial` when at least the essential ones do, else `none`.
        parts: for each part, whether an attack on it failed. `writes`: no file outside the scratch folder is
            made or changed; `reads`: none is read but Python's own; `network`; `signals`: to the evaluator;
            `children`: none outlives its program; `environment`: nothing of the evaluator's; `limits`: time
            and memory; `scratch`: a writable folder of limited size; `namespaces`: process list, network,
            mounts of its own.
        mechanisms: what it is done with.
        plan: how programs are started.
    """

    level: str
    parts: dict[str, bool]
    mechanisms: tuple[str, ...]
    plan: Plan

    def as_dict(self) -> dict[str, object]:
        """For the results file."""
        return {"level": self.level, "parts": dict(self.parts), "mechanisms": list(self.mechanisms)}


@functools.cache
def isolation() -> Isolation:
    """The best isolation that works here; found once a process, in well under a second.

    Raises:
        UserError: this is not a POSIX system.
        RunError: not even an unprotected program could be run.
    """
    if os.name != "posix":
        raise UserError(
            f"model-written programs can run on Linux or macOS, not on {sys.platform}; use one of them"
        )
    best, reason = None, ""
    for plan in plans():
        try:
            found = probe(plan)
        except RunError as error:
            reason = str(error)
            continue
        if found.level == "full":
            return found
        if best is None or sum(found.parts.values()) > sum(best.parts.values()):
            best = found
    if best is None:
        raise RunError(f"no program can be run on this machine, not even without isolation ({reason})")
    return best


def plans() -> list[Plan]:
    """The ways to try, best first."""
    bare = Plan("", landlock=0, seccomp=False, may_fork=True)
    if sys.platform != "linux":
        return [bare]
    rules, calls = landlock.abi(), _seccomp_works()
    root = os.geteuid() == 0
    # The limit on processes counts for nobody of each namespace apart, since Linux 5.14, and never for root.
    counted = not root and tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2]) >= (
        5,
        14,
    )
    found = [Plan("root", rules, calls, may_fork=True)] if root else []
    found.append(Plan("user", rules, calls, may_fork=counted))
    found.append(Plan("", rules, calls, may_fork=not calls))
    return [*found, bare]


def _seccomp_works() -> bool:
    # A filter without a program is refused with EFAULT where filters exist, EINVAL where they do not.
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(22, ctypes.c_ulong(2), None, ctypes.c_ulong(0), ctypes.c_ulong(0))
    return seccomp.supported() and ctypes.get_errno() == errno.EFAULT


def probe(plan: Plan) -> Isolation:
    """Runs the attacks under one plan.

    Raises:
        RunError: the plan does not work here.
    """
    limits = Limits(wall_seconds=20.0)
    folder = tempfile.mkdtemp(prefix="numsft-sandbox-")
    server = socket.create_server(("127.0.0.1", 0))
    try:
        target, secret, own = (os.path.join(folder, name) for name in ("target", "secret", "own"))
        os.mkdir(own)
        for path in (target, secret):
            with open(path, "w") as file:
                file.write("untouched")
            os.chmod(path, 0o666)
        os.chmod(folder, 0o777)  # so that it is the sandbox that refuses, not the owner
        facts = {
            "folder": folder,
            "target": target,
            "secret": secret,
            "port": server.getsockname()[1],
            "evaluator": os.getpid(),
            "environment": ["HOME", "TMPDIR", "LC_CTYPE", *(name for name, _ in interpreter().environment)],
            "cpu": limits.whole_cpu_seconds,
            "memory": limits.memory_mib << 20,
            "scratch": SCRATCH_MIB << 20,
        }
        outcome = run_one(f"FACTS = {facts!r}\n{_ATTACKS}", plan, limits, interpreter(), own, Running())
        if outcome.error:
            raise RunError(f"the probe of the sandbox ended with {outcome.error}")
        parts: dict[str, bool] = json.loads(outcome.stdout)
        parts["writes"] &= (
            sorted(os.listdir(folder)) == ["own", "secret", "target"] and _text(target) == "untouched"
        )
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)
    holds = all(parts[name] for name in ESSENTIAL)
    level = "full" if all(parts.values()) else "partial" if holds else "none"
    return Isolation(level, parts, plan.mechanisms, plan)


def _text(path: str) -> str:
    with open(path) as file:
        return file.read()


_ATTACKS = r"""
import json, os, resource, socket, time

def fails(attack):
    try:
        attack()
    except OSError:
        return True
    return False

def overwrite():
    with open(FACTS["target"], "w") as file:
        file.write("changed")

def connect():
    socket.create_connection(("127.0.0.1", FACTS["port"]), 2).close()

def send():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", FACTS["port"]))

def fork():
    if os.fork() == 0:
        os._exit(0)
    os.wait()

own_pids = os.getppid() == 1  # the first process of a pid namespace made us; its own pids are 1 and 2
writes = [
    lambda: os.chmod(FACTS["target"], 0o600),
    lambda: os.utime(FACTS["target"], (1, 1)),
    lambda: os.truncate(FACTS["target"], 1),
    overwrite,
    lambda: open(FACTS["folder"] + "/new", "x"),
    lambda: os.mkdir(FACTS["folder"] + "/new_folder"),
    lambda: os.symlink("target", FACTS["folder"] + "/new_link"),
    lambda: os.unlink(FACTS["target"]),
]
read = fails(lambda: open(FACTS["secret"]).read()) and fails(lambda: os.listdir("/proc"))
try:
    with open("file", "w") as file:
        file.write("x")
    space = os.statvfs(".")
    scratch = space.f_frsize * space.f_blocks <= FACTS["scratch"]
except OSError:
    scratch = False
print(json.dumps({
    "writes": all([fails(write) for write in writes]),
    "reads": read,
    "network": fails(connect) and fails(send),
    "signals": (own_pids and FACTS["evaluator"] <= 2) or fails(lambda: os.kill(FACTS["evaluator"], 0)),
    "children": own_pids or fails(fork),
    "environment": set(os.environ) <= set(FACTS["environment"]),
    "limits": resource.getrlimit(resource.RLIMIT_AS)[0] <= FACTS["memory"]
    and resource.getrlimit(resource.RLIMIT_CPU)[0] <= FACTS["cpu"],
    "scratch": scratch,
    "namespaces": own_pids,
}))
"""
