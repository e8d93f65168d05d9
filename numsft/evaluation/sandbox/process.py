"""One program from text to outcome, on the evaluator's side: start, read a bounded amount, judge."""

from __future__ import annotations

import marshal
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field

from numsft.errors import RunError
from numsft.evaluation.sandbox.inside import mounts
from numsft.evaluation.sandbox.interpreter import Interpreter
from numsft.evaluation.sandbox.plan import Limits, Plan

SCRATCH_MIB = 16
STDERR_BYTES = 1 << 20
# The launcher keeps the wall clock; this is for a launcher that does not come back.
GRACE_SECONDS = 60.0

_BOOT = "import sys; sys.path.insert(0, {folder!r}); from inside.launcher import main; main()"


@dataclass(frozen=True)
class Outcome:
    """What one program did.

    Attributes:
        stdout: what it printed, up to the limit, also when it failed later.
        error: None; `timeout` (wall or processor time); the class name of the exception that ended it
            (`MemoryError` also for memory beyond the limit over all its processes, `SystemExit` for any other
            status than 0); `output` (it printed too much); `killed`; or the name of another signal such as
            `SIGSEGV`.
        seconds: time on the clock from the start of its process to its end.
    """

    stdout: str
    error: str | None
    seconds: float


class Running:
    """The launchers at work, so that all can be stopped at once from another thread."""

    def __init__(self) -> None:
        """Nothing runs."""
        self._lock = threading.Lock()
        self._stops: set[int] = set()
        self.stopped = False

    def add(self, stop: int) -> None:
        """Takes a pipe whose closing stops a launcher."""
        with self._lock:
            self._stops.add(stop)
        if self.stopped:
            self.stop(stop)

    def stop(self, stop: int) -> None:
        """Stops one launcher, or does nothing where that was done."""
        with self._lock:
            if stop in self._stops:
                self._stops.discard(stop)
                os.close(stop)

    def stop_all(self) -> None:
        """Stops every launcher, and those that are added later."""
        self.stopped = True
        for stop in list(self._stops):
            self.stop(stop)


@dataclass
class _Heard:
    """What a program and its launcher have said; `over` = more than may be kept."""

    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    status: bytearray = field(default_factory=bytearray)
    over: bool = False


def run_one(
    program: str, plan: Plan, limits: Limits, python: Interpreter, folder: str, running: Running
) -> Outcome:
    """Runs one program to its end.

    Args:
        program: source text.
        plan: how it is isolated.
        limits: what it may use.
        python: the interpreter it gets.
        folder: an empty folder of its own, used where the plan has no mount namespace.
        running: where to register the launcher.

    Raises:
        RunError: the sandbox itself failed.
    """
    status, status_end = os.pipe()
    stop_end, stop = os.pipe()
    running.add(stop)
    try:
        job = _job(program, plan, limits, python, folder) | {"status": status_end, "stop": stop_end}
        with tempfile.TemporaryFile() as text:
            marshal.dump(job, text)
            text.seek(0)
            launcher = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", "-c", _BOOT.format(folder=os.path.dirname(__file__))],
                stdin=text,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={},
                cwd="/",
                start_new_session=True,
                pass_fds=(status_end, stop_end),
            )
        os.close(status_end)
        status_end = -1
        with launcher:
            heard = _listen(launcher, status, stop, limits, running)
    finally:
        running.stop(stop)
        for fd in (status, status_end, stop_end):
            if fd >= 0:
                os.close(fd)
    return _judge(heard, limits)


def _job(program: str, plan: Plan, limits: Limits, python: Interpreter, folder: str) -> dict[str, object]:
    folder = mounts.SCRATCH if plan.namespaces else folder
    file = os.path.join(folder, "program.py")
    return {
        "program": program.encode("utf-8", "surrogatepass"),
        "evaluator": os.getpid(),
        "namespaces": plan.namespaces,
        "landlock": plan.landlock,
        "seccomp": plan.seccomp,
        "may_fork": plan.may_fork,
        "tasks": plan.tasks,
        "binds": list(python.binds),
        "links": list(python.links),
        "argv": python.command(file),
        "environment": dict(python.environment) | {"HOME": folder, "TMPDIR": folder},
        "folder": folder,
        "file": file,
        "wall": limits.wall_seconds,
        "cpu": limits.whole_cpu_seconds,
        "memory": limits.memory_mib << 20,
        "scratch_mib": SCRATCH_MIB,
    }


def _listen(
    launcher: subprocess.Popen[bytes], status: int, stop: int, limits: Limits, running: Running
) -> _Heard:
    """Reads until the launcher has ended; a surviving child that holds the pipe is not waited for."""
    heard = _Heard()
    assert launcher.stdout is not None and launcher.stderr is not None
    kept = {
        launcher.stdout.fileno(): (heard.stdout, limits.output_bytes),
        launcher.stderr.fileno(): (heard.stderr, STDERR_BYTES),
        status: (heard.status, 4096),
    }
    give_up = time.monotonic() + limits.wall_seconds + GRACE_SECONDS
    with selectors.DefaultSelector() as selector:
        for fd in kept:
            os.set_blocking(fd, False)
            selector.register(fd, selectors.EVENT_READ)
        while status in selector.get_map():
            events = selector.select(give_up - time.monotonic())
            if not events and time.monotonic() >= give_up:
                launcher.kill()
                raise RunError(
                    "the sandbox's launcher did not come back; is this machine overloaded or suspended?"
                )
            for key, _ in events:
                if not _read(key.fd, *kept[key.fd], heard):
                    selector.unregister(key.fd)
                    if heard.over:
                        running.stop(stop)
    for fd, (into, most) in kept.items():
        while _read(fd, into, most, heard):
            pass
    return heard


def _read(fd: int, into: bytearray, most: int, heard: _Heard) -> bool:
    """Takes what is there, one piece; False when there is no more or no more is wanted."""
    if len(into) > most:
        return False
    try:
        piece = os.read(fd, most + 1 - len(into))
    except BlockingIOError:
        return False
    into += piece
    if len(into) > most:
        heard.over = True
        return False
    return bool(piece)


def _judge(heard: _Heard, limits: Limits) -> Outcome:
    """From what was said to an outcome; the first word about the end counts."""
    said: dict[str, str] = {}
    for line in heard.status.decode("utf-8", "replace").splitlines():
        word, _, rest = line.partition(" ")
        said.setdefault(word, rest)
    stdout = heard.stdout[: limits.output_bytes].decode("utf-8", "replace")
    seconds = float(said.get("seconds", "nan"))
    if "broken" in said:
        raise RunError(f"the sandbox could not start a program: {said['broken']}")
    if heard.over:
        error: str | None = "output"
    elif "ended" in said:
        wait_status, cpu_seconds = said["ended"].split()
        error = _ending(int(wait_status), float(cpu_seconds), heard.stderr, limits)
    elif "timeout" in said:
        error = "timeout"
    elif "memory" in said:
        error = "MemoryError"
    else:
        error = "killed"
    return Outcome(stdout, error, seconds)


def _ending(wait_status: int, cpu_seconds: float, stderr: bytearray, limits: Limits) -> str | None:
    code = os.waitstatus_to_exitcode(wait_status)
    if code == 0:
        return None
    if code > 0:
        return exception_name(stderr.decode("utf-8", "replace"))
    if -code == signal.SIGXCPU or (-code == signal.SIGKILL and cpu_seconds >= limits.whole_cpu_seconds):
        return "timeout"
    names = {signal.SIGKILL: "killed", signal.SIGINT: "KeyboardInterrupt"}
    try:
        number = signal.Signals(-code)
    except ValueError:
        return f"signal {-code}"
    return names.get(number, number.name)


_CLASS = re.compile(r"([A-Za-z_][\w.]*)(:|$)")


def exception_name(stderr: str) -> str:
    """The class that the last traceback of a failed interpreter ends with, without its module.

    After the last `  File "..."` line, everything of a traceback but that name is indented.
    """
    lines = stderr.splitlines()
    frames = [n for n, line in enumerate(lines) if line.startswith('  File "')]
    for line in lines[frames[-1] + 1 :] if frames else [line for line in lines if line == "MemoryError"]:
        found = _CLASS.match(line)
        if found:
            return found[1].rpartition(".")[2]
    return "SystemExit"
