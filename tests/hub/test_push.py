"""Pushing with the real client to a Hub on this machine that fails in every way a Hub does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hub_server import TOKEN, Fault, HubServer

from numsft.hub.text import header_lines, loading_lines

# The client's own pauses, which nothing sets, fiftyfold shorter.
QUICK = (
    "import runpy, sys, time; pause = time.sleep; time.sleep = lambda s: pause(s / 50); "
    "runpy.run_module('numsft.hub', run_name='__main__', alter_sys=True)"
)


@pytest.fixture
def hub():
    with HubServer() as server:
        yield server


@pytest.fixture
def output(tmp_path):
    """What a training leaves, with all that must stay here beside it."""
    folder = tmp_path / "out put"
    card = [*header_lines({"library_name": "peft", "base_model": "some/base"}), "", "# out put", ""]
    card += ["## How to load", "", *loading_lines(str(folder), "some/base", adapter=True)]
    contents = {
        "README.md": "\n".join(card).encode(),
        "adapter_config.json": b"{}",
        "adapter_model.safetensors": os.urandom(300_000),
        "resolved.yaml": b"number_loss: del\n",
        "trainer_state.json": b"{}",
        "runs/events.1": b"tensorboard",
        "training_args.bin": b"hf_secret",
        "optimizer.pt": b"state",
        "checkpoint-3/adapter_model.safetensors": b"old",
        "checkpoint-3/optimizer.pt": b"state",
        "merged/model.safetensors": b"whole",
        ".push/adapter_config.json": b"{}",
    }
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


UPLOADED = {
    "README.md",
    "adapter_config.json",
    "adapter_model.safetensors",
    "resolved.yaml",
    "trainer_state.json",
    "runs/events.1",
}


def environment(hub, **changes):
    settings = {
        "HF_ENDPOINT": hub.url,
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_TOKEN": TOKEN,
        "NUMSFT_HUB_WAIT": "0.05",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    return {**os.environ, **settings, **changes}


def push(hub, folder, *arguments, **changes):
    command = [sys.executable, "-c", QUICK, "push", str(folder), "--hub_model_id", "somebody/adder"]
    return subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        env=environment(hub, **changes),
        timeout=120,
    )


def contents(folder):
    return {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def assert_arrived(hub, folder):
    received = hub.repositories["somebody/adder"].files
    assert set(received) == UPLOADED
    assert received == {name: (folder / name).read_bytes() for name in UPLOADED}


def message_of(done, status):
    """The one message of a push that failed, as its lines."""
    assert done.returncode == status, done.stderr
    lines = done.stderr.strip().splitlines()
    assert lines[0].startswith("error: Pushing to somebody/adder failed: "), done.stderr
    assert len(lines) == 3 and len(done.stderr) <= 900 and "Traceback" not in done.stderr
    return lines


def assert_later_command_works(hub, folder, lines, **changes):
    """Run the last line of the message as it stands, in a shell, against a Hub that is well again."""
    hub.faults.clear()
    done = subprocess.run(
        lines[-1],
        shell=True,
        capture_output=True,
        text=True,
        env=environment(hub, **changes),
        timeout=120,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    assert_arrived(hub, folder)


def test_what_arrives_is_what_is_here_and_nothing_that_must_stay(hub, output):
    done = push(hub, output, "--private")
    assert done.returncode == 0, done.stderr
    assert f"{hub.url}/somebody/adder" in done.stdout and not done.stderr
    assert_arrived(hub, output)
    repository = hub.repositories["somebody/adder"]
    assert repository.private and len(repository.commits) == 1
    assert b"hf_secret" not in b"".join(repository.files.values())
    assert hub.count("PUT /lfs/") == 1


def test_the_card_comes_to_name_its_repository(hub, output):
    assert push(hub, output).returncode == 0
    card = hub.repositories["somebody/adder"].files["README.md"].decode()
    assert 'name = "somebody/adder"  #' in card and "\n# adder\n" in card
    assert str(output) not in card


def test_a_second_push_sends_only_what_has_changed(hub, output):
    assert push(hub, output).returncode == 0
    (output / "adapter_config.json").write_text('{"r": 8}')
    assert push(hub, output).returncode == 0
    assert_arrived(hub, output)
    assert hub.count("PUT /lfs/") == 1
    assert push(hub, output).returncode == 0  # nothing has changed
    assert len(hub.repositories["somebody/adder"].commits) == 2


def test_a_branch_is_made_where_it_is_not_there(hub, output):
    assert push(hub, output, "--hub_revision", "trial").returncode == 0
    assert hub.count("commit/trial") == 1 and hub.count("commit/main") == 0
    assert push(hub, output, "--hub_revision", "trial").returncode == 0


def test_a_checkpoint_is_pushed_without_the_state_of_its_optimizer(hub, output):
    assert push(hub, output / "checkpoint-3").returncode == 0
    assert set(hub.repositories["somebody/adder"].files) == {"adapter_model.safetensors"}


def test_a_login_that_is_not_known_is_told_how_to_log_in(hub, output):
    before = contents(output)
    lines = message_of(push(hub, output, HF_TOKEN="hf_wrong"), 2)
    assert "401" in lines[0] and "`hf auth login`" in lines[0] and "HF_TOKEN" in lines[0]
    assert contents(output) == before
    assert hub.count("repos/create") == 1  # a wrong login stays wrong
    assert_later_command_works(hub, output, lines)


def test_a_token_of_the_command_line_is_used_and_not_repeated(hub, output):
    done = push(hub, output, "--token", "hf_wrong_but_mine")
    assert "hf_wrong_but_mine" not in done.stdout + done.stderr
    message_of(done, 2)
    assert push(hub, output, "--token", TOKEN, HF_TOKEN="hf_wrong").returncode == 0


def test_a_login_without_the_right_to_write_is_told_so(hub, output):
    hub.faults = [Fault("POST /api/repos/create", 403), Fault("GET /api/models", 404)]
    lines = message_of(push(hub, output), 2)
    assert "403" in lines[0] and "write access" in lines[0] and "hub_model_id" in lines[0]
    assert_later_command_works(hub, output, lines)


def test_a_repository_that_is_there_but_not_ours_is_told_so(hub, output):
    assert push(hub, output).returncode == 0
    (output / "adapter_config.json").write_text('{"r": 8}')
    # The client takes a 403 on making it for "it is there"; the upload then meets the same.
    hub.faults = [Fault("POST /api/repos/create", 403), Fault("POST .*preupload", 403)]
    assert "403" in message_of(push(hub, output), 2)[0]


def test_a_conflict_of_commits_is_tried_once_more(hub, output):
    hub.faults = [Fault("POST .*/commit/", 409, times=1)]
    assert push(hub, output).returncode == 0
    assert hub.count("/commit/") == 2
    assert_arrived(hub, output)


def test_a_conflict_that_stays_is_given_up_after_that(hub, output):
    hub.faults = [Fault("POST .*/commit/", 409)]
    lines = message_of(push(hub, output), 1)
    assert hub.count("/commit/") == 2 and "409" in lines[0]
    assert_later_command_works(hub, output, lines)


@pytest.mark.parametrize("where", ["repos/create", "validate-yaml", "preupload", "PUT /lfs/", "/commit/"])
@pytest.mark.parametrize("action", [503, "html", "close"])
def test_a_failure_that_passes_is_waited_out(hub, output, where, action):
    hub.faults = [Fault(where, action, times=2)]
    done = push(hub, output)
    assert done.returncode == 0 and not done.stderr, done.stderr
    # The client asks for the card's opinion twice in a push.
    assert hub.count(where) == (4 if where == "validate-yaml" else 3)
    assert_arrived(hub, output)


@pytest.mark.parametrize(("where", "tries"), [("repos/create", 4), ("preupload", 6), ("/commit/", 4)])
def test_a_failure_that_stays_is_given_up(hub, output, where, tries):
    before = contents(output)
    hub.faults = [Fault(where, 500)]
    lines = message_of(push(hub, output), 1)
    assert "500" in lines[0] and hub.count(where) == tries
    assert contents(output) == before
    assert_later_command_works(hub, output, lines)


@pytest.mark.parametrize("action", ["close", "cut"])
def test_a_network_that_goes_away_in_the_middle_of_the_upload(hub, output, action):
    before = contents(output)
    hub.faults = [Fault("PUT /lfs/", action)]
    lines = message_of(push(hub, output), 1)
    assert "connection to 127.0.0.1" in lines[0]
    assert "Signature" not in lines[0]  # of the storage's address
    assert contents(output) == before
    assert not hub.repositories["somebody/adder"].commits  # no half of it
    assert_later_command_works(hub, output, lines)


def test_a_hub_that_falls_silent_is_not_waited_for_without_end(hub, output):
    hub.faults = [Fault("repos/create", "silent")]
    lines = message_of(push(hub, output, NUMSFT_HUB_TIMEOUT="0.2"), 1)
    assert "connection" in lines[0] and hub.count("repos/create") == 4
    assert_later_command_works(hub, output, lines)


def test_no_network_at_all(hub, output):
    before = contents(output)
    hub.stop()
    lines = message_of(push(hub, output), 1)
    assert "connection to 127.0.0.1" in lines[0]
    assert contents(output) == before
    hub.start()
    assert_later_command_works(hub, output, lines)


def test_offline_mode_is_named_and_the_command_lifts_it(hub, output):
    lines = message_of(push(hub, output, HF_HUB_OFFLINE="1"), 2)
    assert "HF_HUB_OFFLINE" in lines[0] and not hub.requests
    assert_later_command_works(hub, output, lines, HF_HUB_OFFLINE="1")


def test_a_card_that_the_hub_refuses_is_named(hub, output):
    (output / "README.md").write_text("---\nbase_model: /home/me/base\n---\n")
    line = message_of(push(hub, output), 2)[0]
    assert "README.md" in line and '"base_model" with value "/home/me/base" is not valid' in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["push", "nowhere", "--hub_model_id", "a/b"], "nowhere is not a folder"),
        (["push", ".", "--hub_model_id", "a/b/c"], "USER/NAME"),
        (["push", "."], "--hub_model_id"),
        (["pull"], "pull"),
        ([], "push|merge"),
        (["push", "empty", "--hub_model_id", "a/b"], "nothing to upload"),
    ],
)
def test_a_mistake_is_one_sentence(capsys, monkeypatch, tmp_path, arguments, words):
    from numsft.hub.__main__ import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ") and words in printed and len(printed.splitlines()) == 1
