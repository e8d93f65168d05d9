"""Which isolation is reached, what is refused without it, and what is left when the evaluator is ended."""

import functools
import os
import signal
import subprocess
import sys
import time

import pytest
from sandbox_watch import adopt_orphans, descendants, without_namespaces

from numsft.errors import UserError
from numsft.evaluation.sandbox import Isolation, isolation, run, run_programs
from numsft.evaluation.sandbox.inside import seccomp
from numsft.evaluation.sandbox.isolation import probe
from numsft.evaluation.sandbox.plan import Limits, Plan

BARE = Plan("", landlock=0, seccomp=False, may_fork=True)


def test_the_probe_tells_no_isolation_from_isolation():
    bare = probe(BARE)
    assert bare.level == "none"
    assert [name for name, holds in bare.parts.items() if holds] == ["environment", "limits"]
    assert probe(isolation().plan) == isolation()


@pytest.mark.skipif(isolation().level != "full", reason="this machine does not give full isolation")
@pytest.mark.parametrize(
    ("plan", "lost"),
    [
        (Plan(isolation().plan.namespaces, 0, False, isolation().plan.may_fork), ""),
        (without_namespaces(), "namespaces scratch"),
        (Plan("", isolation().plan.landlock, False, True), "children namespaces network scratch writes"),
        (Plan("", 0, True, False), "namespaces reads scratch writes"),
    ],
    ids=["namespaces alone", "landlock and seccomp", "landlock alone", "seccomp alone"],
)
def test_each_mechanism_holds_the_parts_it_is_there_for(plan, lost):
    """Landlock alone lets through chmod and datagrams; seccomp cannot tell one path from another."""
    if isolation().plan.landlock < 6:
        pytest.skip("this kernel's Landlock does not know signals")
    parts = probe(plan).parts
    assert sorted(name for name, holds in parts.items() if not holds) == lost.split()


def test_the_level_and_its_parts_can_be_written_to_a_results_file():
    record = isolation().as_dict()
    assert set(record) == {"level", "parts", "mechanisms"}
    assert record["level"] in ("full", "partial", "none")
    assert all(isinstance(holds, bool) for holds in record["parts"].values())


def test_without_isolation_nothing_is_run_unless_it_is_asked_for(monkeypatch):
    nothing = Isolation("none", {"writes": False, "network": False, "limits": True}, ("rlimits",), BARE)
    monkeypatch.setattr(run, "isolation", lambda: nothing)
    with pytest.raises(UserError, match=r"not held: writes, network.*--allow_no_sandbox") as error:
        run_programs(["print(1)"])
    assert "\n" not in str(error.value) and len(str(error.value)) < 900
    outcomes = run_programs(["print(1)", "1/0"], allow_no_sandbox=True, wall_seconds=30)
    assert [(o.stdout, o.error) for o in outcomes] == [("1\n", None), ("", "ZeroDivisionError")]


def in_a_process(body: str, **options) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(path for path in [os.getcwd(), *sys.path] if path)
    environment = {"PYTHONPATH": paths, "PATH": os.environ["PATH"]}
    command = [sys.executable, "-B", "-c", body]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, **options)


@pytest.mark.skipif(not seccomp.supported(), reason="needs a filter that refuses namespaces")
@pytest.mark.skipif(not isolation().plan.landlock, reason="this kernel has no Landlock")
def test_where_namespaces_are_refused_as_in_a_plain_container_isolation_is_partial():
    body = """
import os
from numsft.evaluation.sandbox.inside import kernel, seccomp
unshare = 272 if os.uname().machine == "x86_64" else 97
kernel.prctl("no_new_privs", kernel.PR_SET_NO_NEW_PRIVS, 1)
seccomp.install([(0x20, 0, 0, 0), (0x15, 0, 1, unshare), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)])
from numsft.evaluation.sandbox import isolation, run_programs
print(isolation().level, isolation().plan.namespaces == "", run_programs(["print(2)"])[0].stdout.strip())
print(sorted(name for name, holds in isolation().parts.items() if not holds))
"""
    done = in_a_process(body)
    assert done.stdout.splitlines() == ["partial True 2", "['namespaces', 'scratch']"], done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests are run by an ordinary user")
def test_an_ordinary_user_gets_isolation_too():
    try:
        in_a_process("pass", user=65534, group=65534, extra_groups=[], cwd="/").check_returncode()
    except (PermissionError, subprocess.CalledProcessError):
        pytest.skip("an ordinary user cannot reach this interpreter")
    body = "from numsft.evaluation.sandbox import isolation\nprint(isolation().level)"
    done = in_a_process(body, user=65534, group=65534, extra_groups=[])
    assert done.stdout.strip() in ("full", "partial"), done.stderr


@pytest.fixture
def evaluator(tmp_path):
    """A process that runs endless programs, some with children, once they all run."""
    adopt_orphans()
    before = descendants()
    hang = "import os, time\\ntry: os.fork()\\nexcept OSError: pass\\ntime.sleep(1000)"
    call = f"run_programs(['{hang}'] * 4, wall_seconds=300, workers=3)"
    body = f"from numsft.evaluation.sandbox import run_programs\n{call}"
    paths = os.pathsep.join(path for path in [os.getcwd(), *sys.path] if path)
    environment = {"PYTHONPATH": paths, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-B", "-c", body],
        env=environment,
        stderr=subprocess.PIPE,
        # A shell starts its background jobs with Ctrl-C ignored, and the tests may run in one.
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    programs = 0
    deadline = time.monotonic() + 60
    while programs < 3 and time.monotonic() < deadline:
        time.sleep(0.2)
        programs = sum(command(pid).endswith("program.py')\n\0") for pid in descendants(process.pid))
    assert programs >= 3
    yield process
    deadline = time.monotonic() + 20
    while descendants() != before and time.monotonic() < deadline:
        reap()
        time.sleep(0.05)
    assert descendants() == before


def command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read()
    except OSError:
        return ""


def reap():
    """Takes note of ended orphans, as the machine's own init does."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


@pytest.mark.skipif(isolation().level == "none", reason="this machine cannot isolate programs")
def test_an_interrupt_ends_all_programs(evaluator, tmp_path):
    evaluator.send_signal(signal.SIGINT)
    _, stderr = evaluator.communicate(timeout=30)
    assert b"KeyboardInterrupt" in stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(isolation().level == "none", reason="this machine cannot isolate programs")
def test_a_killed_evaluator_leaves_no_program(evaluator, tmp_path):
    evaluator.kill()
    evaluator.communicate(timeout=30)
    if isolation().plan.namespaces:
        assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(isolation().level == "none", reason="this machine cannot isolate programs")
def test_good_programs_keep_their_results_beside_hostile_ones():
    good = [f"import math\nprint({n} + math.comb(6, 3))" for n in range(8)]
    hostile = [
        "while True: pass",
        "x = [0] * 10**10",
        "print('x' * 10**8)",
        "import os\nos.kill(os.getpid(), 9)",
    ]
    mixed = [program for pair in zip(good, hostile * 2, strict=True) for program in pair]
    outcomes = run_programs(mixed, cpu_seconds=1, wall_seconds=30)
    assert [(o.stdout, o.error) for o in outcomes[::2]] == [(f"{n + 20}\n", None) for n in range(8)]
    assert [o.error for o in outcomes[1::2]] == ["timeout", "MemoryError", "output", "killed"] * 2


def test_limits_are_whole_seconds_of_processor_time():
    assert [Limits(cpu_seconds=seconds).whole_cpu_seconds for seconds in (0.2, 1, 4.1)] == [1, 1, 5]
