"""Each thing a hostile program may try, under the best isolation here and under that of a plain container."""

import os
import socket
import time
from pathlib import Path

import pytest
from sandbox_watch import adopt_orphans, descendants, without_namespaces

from numsft.evaluation.sandbox import Outcome, isolation
from numsft.evaluation.sandbox.plan import Limits
from numsft.evaluation.sandbox.process import SCRATCH_MIB
from numsft.evaluation.sandbox.run import run_batch

pytestmark = pytest.mark.skipif(isolation().level == "none", reason="this machine cannot isolate programs")

# A busy machine may need a second for the start alone.
GENEROUS = Limits(wall_seconds=30)
SHORT = Limits(wall_seconds=2)


@pytest.fixture(params=["best", "without namespaces"])
def plan(request, tmp_path, monkeypatch):
    """Also checks, after each test, that no process and no file is left."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    adopt_orphans()
    before = descendants()
    yield isolation().plan if request.param == "best" else without_namespaces()
    assert descendants() == before
    assert list(tmp_path.glob("numsft-sandbox-*")) == []


@pytest.fixture
def forking(plan):
    """For programs that start processes: the plan without namespaces refuses that."""
    if not plan.may_fork:
        outcome = run("import os\nprint(1)\nos.fork()\nprint(2)", plan)
        assert outcome.stdout == "1\n" and outcome.error == "PermissionError"
        pytest.skip("programs cannot start processes under this plan, as was just seen")
    return plan


@pytest.fixture
def target(tmp_path):
    """A file that programs try to change; as open as a file can be."""
    path = tmp_path / "outside" / "target"
    path.parent.mkdir()
    path.write_text("untouched")
    for place in (path, path.parent, tmp_path):
        place.chmod(0o777)
    return path


def run(program: str, plan, limits: Limits = GENEROUS) -> Outcome:
    return run_batch([program], plan, limits, 1)[0]


def refused(statement: str, plan, setup: str = "") -> str:
    """The error number's name with which a statement fails; fails the test if it does not fail."""
    lines = f"import errno, os\n{setup}\ntry:\n    {statement}\nexcept OSError as e:\n    print(errno.errorcode[e.errno])"
    outcome = run(lines, plan)
    assert outcome.error is None, outcome
    assert outcome.stdout, f"{statement} was not refused"
    return outcome.stdout.strip()


# Time


def test_an_endless_loop_is_a_timeout_and_keeps_its_output(plan):
    outcome = run("print(7)\nwhile True: pass", plan, SHORT)
    assert (outcome.stdout, outcome.error) == ("7\n", "timeout")
    assert outcome.seconds < 10


def test_processor_time_is_limited_apart_from_the_clock(plan):
    outcome = run("while True: pass", plan, Limits(wall_seconds=60, cpu_seconds=1))
    assert outcome.error == "timeout"
    assert outcome.seconds < 50


def test_sleeping_is_a_timeout(plan):
    assert run("import time\ntime.sleep(1000)", plan, SHORT).error == "timeout"


def test_a_huge_power_that_never_returns_to_the_interpreter_is_ended(plan):
    assert run("print(10**10**9)", plan, SHORT).error in ("timeout", "MemoryError")


def test_ignoring_every_signal_does_not_help(plan):
    ignore = "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except OSError: pass\n"
    assert run(ignore + "while True: pass", plan, SHORT).error == "timeout"


def test_a_program_that_stops_itself_is_a_timeout(plan):
    assert run("import os\nos.kill(os.getpid(), 19)", plan, SHORT).error == "timeout"


# Memory


@pytest.mark.parametrize(
    "program",
    [
        "x = [0] * 10**10",
        "x = bytearray(80 * 10**9)",
        "x = []\nwhile True: x.append('y' * 10**6 + str(len(x)))",
    ],
)
def test_memory_beyond_the_limit_is_a_memory_error(program, plan):
    outcome = run(f"print(1)\n{program}", plan)
    assert (outcome.stdout, outcome.error) == ("1\n", "MemoryError")


def test_memory_is_limited_over_all_processes_of_a_program(forking):
    program = "import os, time\nfor _ in range(8):\n    if os.fork() == 0: break\nx = b'x' * (100 << 20)\ntime.sleep(60)"
    outcome = run(program, forking, Limits(wall_seconds=40, memory_mib=256))
    assert outcome.error == "MemoryError"
    assert outcome.seconds < 35


def test_memory_that_no_limit_counts_is_refused(plan):
    assert refused("os.memfd_create('x')", plan) == "EPERM"
    assert refused("call(29, 0, 1 << 30, 0o1666)", plan, _CALL_X86) == "EPERM"


# Output


@pytest.mark.parametrize(
    "program",
    [
        "print('x' * 10**8)",
        "while True: print('x' * 1000)",
        "import os\nwhile True: os.write(1, b'x' * 65536)",
    ],
)
def test_a_flood_of_output_is_cut_at_the_limit_and_costs_nothing(program, plan):
    start = time.monotonic()
    outcome = run(program, plan, Limits(wall_seconds=60, cpu_seconds=50))
    assert outcome.error == "output"
    assert outcome.stdout.replace("\n", "x") == "x" * 65536
    assert time.monotonic() - start < 20


def test_a_flood_of_errors_is_cut(plan):
    assert run("import sys\nwhile True: sys.stderr.write('x' * 1000)", plan).error == "output"


def test_output_up_to_the_limit_is_kept_whole(plan):
    limits = Limits(wall_seconds=30, output_bytes=1000)
    assert run("print('x' * 999)", plan, limits).error is None
    assert run("print('x' * 1000)", plan, limits).error == "output"


def test_bytes_that_are_no_text_are_replaced(plan):
    assert run("import os\nos.write(1, b'5\\xff\\n')", plan).stdout == "5\ufffd\n"


# Processes


def test_a_fork_bomb_ends_with_its_row(forking):
    outcome = run(
        "import os\nprint(1)\nwhile True:\n    try: os.fork()\n    except OSError: pass", forking, SHORT
    )
    assert (outcome.stdout, outcome.error) == ("1\n", "timeout")


def test_the_number_of_processes_is_limited(forking):
    program = """
import os, time
count = 0
try:
    while True:
        if os.fork() == 0: time.sleep(60)
        count += 1
except OSError:
    print(count)
"""
    assert 10 < int(run(program, forking).stdout) < 64


def test_a_flood_of_threads_ends_with_its_row(plan):
    outcome = run(
        "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,)).start()",
        plan,
        SHORT,
    )
    assert outcome.error in ("RuntimeError", "timeout", "MemoryError")


def test_a_finished_program_whose_child_holds_the_pipe_is_no_timeout(forking):
    outcome = run("import os, time\nif os.fork() == 0:\n    time.sleep(1000)\nprint(5)", forking)
    assert (outcome.stdout, outcome.error) == ("5\n", None)
    assert outcome.seconds < 20


def test_a_daemon_of_its_own_session_is_killed(forking):
    program = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(1000)\n    os._exit(0)\nos.wait()\nprint(5)"
    assert run(program, forking).stdout == "5\n"


# Signals and other processes


def test_the_evaluator_cannot_be_signalled(plan):
    evaluator = os.getpid()
    for statement in (
        f"os.kill({evaluator}, 9)",
        f"os.kill({os.getppid()}, 9)",
        f"os.killpg({os.getpgid(0)}, 9)",
    ):
        assert refused(statement, plan) in ("ESRCH", "EPERM")


@pytest.mark.parametrize(
    "statement", ["os.kill(-1, 9)", "os.killpg(0, 9)", "os.kill(os.getppid(), 9)", "os.kill(1, 9)"]
)
def test_signals_to_many_reach_the_program_alone(statement, plan):
    outcome = run(f"import os\nprint(1)\n{statement}\nprint(2)", plan)
    assert outcome.stdout in ("1\n", "1\n2\n")
    assert outcome.error in (None, "killed", "PermissionError", "ProcessLookupError")


def test_a_program_that_kills_itself_is_killed(plan):
    outcome = run("import os\nprint(3)\nos.kill(os.getpid(), 9)", plan)
    assert (outcome.stdout, outcome.error) == ("3\n", "killed")


def test_the_evaluator_cannot_be_traced_or_limited(plan):
    evaluator = os.getpid()
    assert refused(f"call(101, 16, {evaluator}, 0, 0)", plan, _CALL_X86) == "EPERM"
    assert refused(f"call(310, {evaluator}, 0, 0, 0)", plan, _CALL_X86) == "EPERM"
    limit = f"import resource\nresource.prlimit({evaluator}, resource.RLIMIT_CPU, (1, 1))"
    assert run(limit, plan).error in ("ProcessLookupError", "PermissionError")
    assert refused(f"os.setpriority(os.PRIO_PROCESS, {evaluator}, 19)", plan) in ("ESRCH", "EPERM", "EACCES")
    assert refused(f"os.sched_setaffinity({evaluator}, [0])", plan) in ("ESRCH", "EPERM")


def test_a_pipe_cannot_be_made_to_signal_the_evaluator(plan):
    program = f"""
import fcntl, os
r, w = os.pipe()
fcntl.fcntl(r, fcntl.F_SETOWN, {os.getpid()})
fcntl.fcntl(r, 10, 9)
fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)
os.write(w, b'x')
"""
    assert run(program, plan).error in ("PermissionError", "ProcessLookupError")


def test_no_process_of_the_machine_can_be_looked_at(plan):
    for statement in (
        f"open('/proc/{os.getpid()}/environ').read()",
        "open('/proc/self/maps')",
        "os.listdir('/proc')",
    ):
        assert refused(statement, plan) in ("ENOENT", "EACCES")


# Files


@pytest.mark.parametrize(
    "statement",
    [
        "open(T, 'w')", "open(T, 'a')", "open(T, 'r+')", "os.truncate(T, 0)", "os.unlink(T)", "os.chmod(T, 0)",
        "os.utime(T, (1, 1))", "os.chown(T, 1, 1)", "os.setxattr(T, 'user.x', b'1')", "os.rename(T, T + '2')",
        "os.symlink('x', T + '2')", "os.link(T, T + '2')", "os.mkdir(T + '2')", "open(T + '2', 'x')",
        "os.mkfifo(T + '2')", "os.rmdir(os.path.dirname(T))",
    ],
)  # fmt: skip
def test_no_file_outside_is_made_or_changed(statement, plan, target):
    before = target.stat()
    assert refused(statement, plan, f"T = {str(target)!r}") in ("ENOENT", "EACCES", "EPERM", "EROFS", "EXDEV")
    assert target.read_text() == "untouched" and os.listdir(target.parent) == ["target"]
    assert (target.stat().st_mode, target.stat().st_mtime_ns) == (before.st_mode, before.st_mtime_ns)


def test_a_symbolic_link_leads_nowhere(plan, target):
    program = f"import os\nos.symlink({str(target)!r}, 'link')\nopen('link', 'w').write('changed')"
    assert run(program, plan).error in ("FileNotFoundError", "PermissionError")
    assert target.read_text() == "untouched"


@pytest.mark.parametrize(
    "folder", ["/tmp", "/dev/shm", "/var/tmp", "/root", os.path.expanduser("~"), "/", os.getcwd()]
)
def test_nothing_appears_in_the_folders_everyone_writes_to(folder, plan):
    name = f"numsft-hazard-{os.getpid()}"
    run(f"open({os.path.join(folder, name)!r}, 'w').write('x')", plan)
    assert not os.path.exists(os.path.join(folder, name))


def test_pythons_own_files_cannot_be_changed(plan):
    for module in ("os", "numpy"):
        setup = f"import {module}\nP = {module}.__file__"
        assert refused("open(P, 'a')", plan, setup) in ("EACCES", "EROFS", "EPERM")
        assert refused("os.chmod(P, 0o777)", plan, setup) in ("EPERM", "EROFS")
        assert refused("os.rename(P, P + 'x')", plan, setup) in ("EACCES", "EROFS", "EPERM")


def test_the_disk_cannot_be_filled(plan):
    program = """
total = 0
try:
    for n in range(10**6):
        with open(f"file{n}", "wb") as file:
            total += file.write(b"x" * (1 << 20))
except OSError:
    pass
print(total >> 20)
"""
    assert int(run(program, plan).stdout) <= SCRATCH_MIB


def test_a_sparse_file_and_a_flood_of_names_are_bounded(plan):
    assert refused("open('x', 'wb').truncate(1 << 40)", plan) in ("EFBIG", "EACCES")
    assert refused("[os.mkdir(str(n)) for n in range(10**5)]", plan) in ("ENOSPC", "EACCES")


def test_files_of_others_cannot_be_read(plan, target):
    home = os.path.expanduser("~")
    for path in (str(target), "/etc/passwd", "/etc/shadow", os.path.abspath(__file__)):
        assert refused(f"open({path!r}).read()", plan) in ("ENOENT", "EACCES")
    assert refused(f"os.listdir({home!r})", plan) in ("ENOENT", "EACCES", "EPERM") or home == "/"


def test_the_environment_is_not_the_evaluators(plan, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret-token")
    outcome = run("import os\nprint(sorted(os.environ))", plan)
    assert outcome.stdout.strip() == str(
        sorted(
            ["HOME", "LC_ALL", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONHASHSEED"]
            + ["PYTHONPATH", "TMPDIR"]
        )
    )


def test_open_files_of_the_evaluator_are_not_passed_on(plan, target):
    with open(target) as held:
        os.set_inheritable(held.fileno(), True)
        program = (
            "import os\nfor n in range(3, 4096):\n    try: print(n, os.fstat(n))\n    except OSError: pass"
        )
        assert run(program, plan).stdout == ""


# Network


def test_the_network_is_out_of_reach(plan):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        setup = "import socket as s"
        assert refused(f"s.create_connection(('127.0.0.1', {port}), 5)", plan, setup) in (
            "EPERM",
            "ENETUNREACH",
        )
        for kind in ("s.SOCK_DGRAM", "s.SOCK_RAW"):
            assert refused(f"s.socket(s.AF_INET, {kind}).sendto(b'x', ('127.0.0.1', {port}))", plan, setup)
        assert refused("s.socket(s.AF_UNIX).connect('\\0numsft')", plan, setup) in ("EPERM", "ECONNREFUSED")
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()


# The ways out of the interpreter


def test_leaving_by_os_exit_keeps_what_was_printed(plan):
    for status, error in ((0, None), (3, "SystemExit")):
        outcome = run(f"import os\nprint(4)\nos._exit({status})", plan)
        assert (outcome.stdout, outcome.error) == ("4\n", error)


def test_a_crash_of_the_interpreter_is_named_by_its_signal(plan):
    assert run("import ctypes\nctypes.string_at(0)", plan).error == "SIGSEGV"
    assert run("import os\nprint(1)\nos.abort()", plan).error in ("SIGABRT", "SIGSEGV")


def test_recursion_without_a_limit_harms_only_its_row(plan):
    program = "import sys\nsys.setrecursionlimit(10**9)\ndef f(): return [f()]\nprint(2)\nf()"
    outcome = run(program, plan)
    assert outcome.stdout == "2\n"
    assert outcome.error in ("SIGSEGV", "MemoryError", "RecursionError", "timeout")


def test_a_program_cannot_write_its_own_verdict(plan):
    program = """
import os, sys
for fd in range(2, 256):
    try: os.write(fd, b"ended 0 0\\nbroken by the program\\n")
    except OSError: pass
raise ValueError("x")
"""
    outcome = run(program, plan)
    assert (outcome.stdout, outcome.error) == ("", "ValueError")


@pytest.mark.parametrize(
    "name", ["Ünïcode", "x" * 100000, "a.b", "\x1b[31m", "Traceback (most recent call last)", "None"]
)
def test_a_strange_exception_does_not_confuse_the_evaluator(name, plan):
    outcome = run(
        f"E = type({name!r}, (Exception,), {{'__module__': 'm.n'}})\nraise E('\\n'.join('abc'))", plan
    )
    assert isinstance(outcome.error, str) and outcome.stdout == ""


def test_closing_standard_output_is_no_crash(plan):
    outcome = run("import os\nprint(1)\nos.close(1)\nos.close(2)\nos._exit(0)", plan)
    assert (outcome.stdout, outcome.error) == ("1\n", None)


def test_importing_this_package_changes_nothing(plan):
    before = {path: path.stat().st_mtime_ns for path in Path("numsft").rglob("*.py")}
    program = """
try:
    import numsft.evaluation.sandbox.run as r
    r.run_batch = None
    open(r.__file__, "w").write("")
except (ImportError, OSError):
    print("refused")
"""
    assert run(program, plan).stdout == "refused\n"
    assert {path: path.stat().st_mtime_ns for path in Path("numsft").rglob("*.py")} == before
    assert run("print(1)", plan).stdout == "1\n"


@pytest.mark.parametrize("number", [272, 165, 161, 155, 321, 425, 298, 250], ids=str)
def test_namespaces_mounts_and_kernel_interfaces_are_refused(number, plan):
    """unshare, mount, chroot, pivot_root, bpf, io_uring_setup, perf_event_open, keyctl."""
    assert refused(f"call({number}, 0, 0, 0, 0)", plan, _CALL_X86) == "EPERM"


_CALL_X86 = """
import ctypes
if os.uname().machine != "x86_64":
    print("EPERM")
    raise SystemExit
_libc = ctypes.CDLL(None, use_errno=True)
def call(*words):
    if _libc.syscall(*[ctypes.c_long(w) for w in words]) < 0:
        raise OSError(ctypes.get_errno(), "refused")
"""
