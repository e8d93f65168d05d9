"""A hostile program cannot take more time, memory, output or processes than its share."""

import time

import pytest
from sandbox_watch import CALL_X86, SHORT, refused, run

from numsft.evaluation.sandbox.plan import Limits

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
    program = """
import signal
for n in range(1, 65):
    try: signal.signal(n, signal.SIG_IGN)
    except OSError: pass
while True: pass
"""
    assert run(program, plan, SHORT).error == "timeout"


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
    program = """
import os, time
for _ in range(8):
    if os.fork() == 0: break
x = b"x" * (100 << 20)
time.sleep(60)
"""
    outcome = run(program, forking, Limits(wall_seconds=40, memory_mib=256))
    assert outcome.error == "MemoryError"
    assert outcome.seconds < 35


def test_memory_that_no_limit_counts_is_refused(plan):
    assert refused("os.memfd_create('x')", plan) == "EPERM"
    assert refused("call(29, 0, 1 << 30, 0o1666)", plan, CALL_X86) == "EPERM"


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
    program = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(1000)
    os._exit(0)
os.wait()
print(5)
"""
    assert run(program, forking).stdout == "5\n"
