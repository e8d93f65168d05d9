"""However a program ends, its verdict is right and no other's changes."""

from pathlib import Path
from unittest.mock import ANY

import pytest
from sandbox_watch import CALL_X86, refused, run

from numsft.evaluation.sandbox import Outcome
from numsft.evaluation.sandbox.plan import Limits


def test_leaving_by_os_exit_keeps_what_was_printed(plan):
    for status, error in ((0, None), (3, "SystemExit")):
        outcome = run(f"import os\nprint(4)\nos._exit({status})", plan)
        assert (outcome.stdout, outcome.error) == ("4\n", error)


def test_a_crash_of_the_interpreter_is_named_by_its_signal(plan):
    assert run("import ctypes\nctypes.string_at(0)", plan).error == "SIGSEGV"
    assert run("import os\nprint(1)\nos.abort()", plan).error in ("SIGABRT", "SIGSEGV")


def test_recursion_without_a_limit_harms_only_its_row(plan):
    program = "import sys\nsys.setrecursionlimit(10**9)\ndef f(): return [f()]\nprint(2)\nf()"
    outcome = run(program, plan, Limits(wall_seconds=30, memory_mib=256))
    # Which error depends on where memory ends: CPython itself may find one of its calls without a result.
    assert outcome.stdout == "2\n" and outcome.error is not None
    assert run("print(3)", plan) == Outcome("3\n", None, ANY)


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
    assert refused(f"call({number}, 0, 0, 0, 0)", plan, CALL_X86) == "EPERM"
