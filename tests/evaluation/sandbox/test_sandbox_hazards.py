"""A hostile program reaches no process, file or network but its own."""

import os
import socket

import pytest
from sandbox_watch import CALL_X86, refused, run

from numsft.evaluation.sandbox.process import SCRATCH_MIB

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
    assert refused(f"call(101, 16, {evaluator}, 0, 0)", plan, CALL_X86) == "EPERM"
    assert refused(f"call(310, {evaluator}, 0, 0, 0)", plan, CALL_X86) == "EPERM"
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
        f"open('/proc/{os.getpid()}/environ')",
        "open('/proc/self/maps')",
        "os.listdir('/proc')",
    ):
        assert refused(statement, plan) in ("ENOENT", "EACCES")


# Files


@pytest.mark.parametrize(
    "statement",
    [
        "open(T, 'w')", "open(T, 'a')", "open(T, 'r+')", "os.truncate(T, 0)", "os.unlink(T)",
        "os.chmod(T, 0)",
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
    names = (
        "HOME LC_ALL MKL_NUM_THREADS OMP_NUM_THREADS OPENBLAS_NUM_THREADS PYTHONHASHSEED PYTHONPATH TMPDIR"
    )
    assert outcome.stdout.strip() == str(names.split())


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
