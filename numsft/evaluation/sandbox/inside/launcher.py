"""Runs one program: three processes, each with one duty.

*Launcher* (in the evaluator's pid namespace): starts the others, holds the wall clock, watches memory, kills.
*Init* (pid 1 of the program's own namespace): builds the root, waits for the program; its end kills all that
is left.
*Program*: limits itself, gives up its rights, becomes a fresh interpreter. Without namespaces there is no
init.

The job comes as one marshalled dict on stdin, the outcome goes as lines to `job["status"]`, a pipe that is
closed before the program starts: nothing the program does can write there.
"""

from __future__ import annotations

import marshal
import os
import resource
import select
import sys
import time
from typing import Any

from . import kernel, landlock, mounts, seccomp

Job = dict[str, Any]

TICK = 0.05  # seconds between two looks at memory
NOBODY = 65534


def main() -> None:
    """Runs the job on stdin; ends this process."""
    job: Job = marshal.load(sys.stdin.buffer)
    _guarded(job, lambda: _launch(job))


def _guarded(job: Job, work: Any) -> None:
    """Does the work of one process; a failure of the sandbox itself is told to the evaluator in one line."""
    try:
        work()
    except BaseException as error:
        os.write(job["status"], f"broken {type(error).__name__}: {error}\n".replace("\n", " ").encode())
        os._exit(1)
    os._exit(0)


def _launch(job: Job) -> None:
    for fd in (job["status"], job["stop"]):
        os.set_inheritable(fd, False)
    if sys.platform == "linux":
        kernel.die_with_parent()
        if os.getppid() != job["evaluator"]:
            return
    namespaces = job["namespaces"]
    if namespaces:
        _new_namespaces(namespaces)
    alive, held = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(held)
        _guarded(job, lambda: _init(job, alive) if namespaces else _program(job, alive))
    started = time.monotonic()
    ended, why, usage = _watch(job, child, started)
    if not namespaces:
        _kill_group(child)
    if why:
        _tell(job, why)
    elif not namespaces:
        _tell(job, f"ended {ended} {usage}")
    _tell(job, f"seconds {time.monotonic() - started:.4f}")


def _new_namespaces(kind: str) -> None:
    """`root`: with the rights of root. `user`: as anyone, in a user namespace where this user is nobody."""
    flags = kernel.CLONE_NEWPID | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
    if kind == "user":
        flags |= kernel.CLONE_NEWUSER
    uid, gid = os.geteuid(), os.getegid()
    # The kernel tidies finished namespaces up behind our back, so a limit on their number can be hit for a
    # moment.
    for attempt in range(50):
        try:
            kernel.unshare(flags)
            break
        except OSError:
            if attempt == 49:
                raise
            time.sleep(0.02)
    if kind == "user":
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{NOBODY} {uid} 1")
        _write("/proc/self/gid_map", f"{NOBODY} {gid} 1")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _tell(job: Job, line: str) -> None:
    os.write(job["status"], f"{line}\n".encode())


def _watch(job: Job, child: int, started: float) -> tuple[int, str, float]:
    """Waits for the child; kills it when the time or the memory is used up, or the evaluator says stop.

    Returns:
        (wait status, what it was killed for or "", CPU seconds).
    """
    poll = select.poll()
    poll.register(job["stop"], select.POLLIN)  # readable: the evaluator closed its end, or is gone
    try:
        poll.register(os.pidfd_open(child), select.POLLIN)
        longest = TICK
    except (OSError, AttributeError):
        longest = 0.005
    why = ""
    while True:
        left = job["wall"] - (time.monotonic() - started)
        events = poll.poll(max(0.0, min(longest, left)) * 1000)
        pid, status, usage = os.wait4(child, 0 if why else os.WNOHANG)
        if pid:
            return status, why, usage.ru_utime + usage.ru_stime
        if any(fd == job["stop"] for fd, _ in events):
            why = "stopped"
        elif left <= 0:
            why = "timeout"
        elif job["may_fork"] and job["namespaces"] and _used(child) > job["memory"]:
            why = "memory"
        if why:
            os.kill(child, kernel.SIGKILL)


def _used(init: int) -> int:
    """Resident bytes of all processes of a program; its children are moved behind every other program.

    A program may fork, so a limit a process is no limit on the whole, and many busy children of one program
    would starve the programs beside it.
    """
    total, waiting, program = 0, [init], 0
    while waiting:
        pid = waiting.pop()
        try:
            with open(f"/proc/{pid}/statm") as file:
                total += int(file.read().split()[1]) * resource.getpagesize()
            for task in os.listdir(f"/proc/{pid}/task"):
                if pid not in (init, program):
                    os.setpriority(os.PRIO_PROCESS, int(task), 19)
                with open(f"/proc/{pid}/task/{task}/children") as file:
                    children = [int(child) for child in file.read().split()]
                if pid == init and children and not program:
                    program = children[0]
                waiting += children
        except OSError:
            continue  # it ended meanwhile
    return total


def _kill_group(program: int) -> None:
    try:
        os.killpg(program, kernel.SIGKILL)
    except OSError:
        pass  # nobody is left in it


def _init(job: Job, alive: int) -> None:
    kernel.die_with_parent()
    os.set_blocking(alive, False)
    try:
        os.read(alive, 1)
        return  # the launcher ended before it could take us along
    except BlockingIOError:
        os.close(alive)
    kernel.unshare(kernel.CLONE_NEWNS)
    mounts.build_root(job["binds"], job["links"], job["scratch_mib"])
    child = os.fork()
    if child == 0:
        _guarded(job, lambda: _program(job, None))
    for fd in (0, 1, 2):
        os.close(fd)
    while True:
        pid, status, usage = os.wait4(-1, 0)
        if pid == child:
            _tell(job, f"ended {status} {usage.ru_utime + usage.ru_stime}")
            return


def _program(job: Job, alive: int | None) -> None:
    """Becomes the program, with nothing left of the evaluator's rights."""
    parent = os.getppid()
    os.setsid()
    os.chdir(job["folder"])
    with open(job["file"], "wb") as file:
        file.write(job["program"])
    if job["namespaces"] == "root":
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        kernel.unshare(kernel.CLONE_NEWUSER)  # counts this program's processes apart from all others
    _limit(job)
    if sys.platform == "linux":
        _restrict(job, parent, alive)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.execve(job["argv"][0], job["argv"], job["environment"])


def _limit(job: Job) -> None:
    limits = {
        "CPU": (job["cpu"], job["cpu"] + 1),
        "AS": job["memory"],
        "STACK": 8 << 20,
        "FSIZE": job["scratch_mib"] << 20,
        "NOFILE": 64,
        "NPROC": job["tasks"],
        "CORE": 0,
        "MEMLOCK": 0,
        "MSGQUEUE": 0,
        "RTPRIO": 0,
        "SIGPENDING": 64,
    }
    for name, limit in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}", None)
        if kind is None or limit is None:
            continue
        hard = resource.getrlimit(kind)[1]
        pair = limit if isinstance(limit, tuple) else (limit, limit)
        if hard != resource.RLIM_INFINITY:
            pair = (min(pair[0], hard), min(pair[1], hard))
        try:
            resource.setrlimit(kind, pair)
        except (OSError, ValueError):
            if sys.platform == "linux":
                raise


def _restrict(job: Job, parent: int, alive: int | None) -> None:
    kernel.fix_addresses()
    kernel.drop_capabilities()
    kernel.prctl("no_new_privs", kernel.PR_SET_NO_NEW_PRIVS, 1)
    if job["landlock"]:
        namespaces = job["namespaces"]
        readable = [*job["binds"], "/dev/zero", "/dev/random", "/dev/urandom"]
        writable = ["/dev/null", job["folder"]] if namespaces else ["/dev/null"]
        landlock.restrict(job["landlock"], readable if namespaces else [*readable, job["folder"]], writable)
    if alive is not None:
        kernel.die_with_parent()
        if os.getppid() != parent:
            os._exit(1)
    if job["seccomp"]:
        seccomp.restrict(alone=not job["may_fork"])
