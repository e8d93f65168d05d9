"""The plans that hostile programs are run under, and a check after each that nothing of them is left."""

import pytest
from sandbox_watch import adopt_orphans, descendants, level_of, run, without_namespaces

from numsft.evaluation.sandbox import isolation


@pytest.fixture(params=["best", "without namespaces"])
def plan(request, tmp_path, monkeypatch):
    """Also checks, after each test, that no process and no file is left."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    adopt_orphans()
    before = descendants()
    chosen = isolation().plan if request.param == "best" else without_namespaces()
    if level_of(chosen) == "none":  # these programs would do harm
        pytest.skip("this machine cannot isolate programs without namespaces")
    yield chosen
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
