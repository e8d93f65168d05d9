import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from fake_rows import choice_rows, open_rows

from numsft.errors import UserError
from numsft.evaluation.card import card_with_scores, main
from numsft.evaluation.scores import scores

CARD = """\
---
base_model: HuggingFaceTB/SmolLM2-135M-Instruct
library_name: peft
license: apache-2.0
tags:
- numsft
x-mine: kept
---

# A model

Some text.


```python
a = 1


b = 2
```
"""


def result(skill):
    return scores(open_rows("gsm8k", 60, skill) + choice_rows("aqua", 30, 0.3), "strict", resamples=100)


def header(card):
    return yaml.safe_load(card.split("---\n")[1])


def values(card):
    found = header(card)["model-index"][0]["results"]
    return {(one["dataset"]["name"], m["type"]): m["value"] for one in found for m in one["metrics"]}


def test_card_gets_metadata_and_a_section_and_keeps_all_else():
    found = result(0.5)
    card = card_with_scores(CARD, found, "my-model")
    assert header(card)["base_model"] == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert (header(card)["license"], header(card)["x-mine"]) == ("apache-2.0", "kept")
    assert header(card)["model-index"][0]["name"] == "my-model"
    gsm8k = found["benchmarks"]["gsm8k"]
    assert values(card)["GSM8K", "accuracy"] == pytest.approx(gsm8k["accuracy"], abs=1e-6)
    assert values(card)["GSM8K", "log_mae"] == pytest.approx(gsm8k["log_mae"]["ln_eps"], abs=1e-6)
    assert ("AQuA", "accuracy") in values(card) and ("AQuA", "log_mae") not in values(card)
    assert CARD.split("---\n")[2].strip() in card
    assert "## Scores" in card and f"{gsm8k['accuracy']:.1%}" in card


def test_scores_put_there_before_are_replaced_and_those_of_others_stay():
    once = card_with_scores(CARD, result(0.2), "m")
    more = header(once)
    more["model-index"][0]["results"].append(
        {
            "task": {"type": "text-generation"},
            "dataset": {"type": "other/data", "name": "Other"},
            "metrics": [{"type": "f1", "value": 0.7}],
        }
    )
    theirs = f"---\n{yaml.safe_dump(more)}---\n" + once.split("---\n", 2)[2] + "\nText after.\n"
    twice = card_with_scores(theirs, result(0.8), "another name")
    assert twice.count("## Scores") == 1
    assert values(twice)["Other", "f1"] == 0.7
    assert values(twice)["GSM8K", "accuracy"] == pytest.approx(
        result(0.8)["benchmarks"]["gsm8k"]["accuracy"], abs=1e-6
    )
    assert header(twice)["model-index"][0]["name"] == "m"
    assert "Text after." in twice and "# A model" in twice
    assert card_with_scores(twice, result(0.8), "m") == twice


def test_a_card_without_a_header_gets_one():
    card = card_with_scores("# Bare\n", result(0.5), "bare")
    assert header(card)["model-index"][0]["name"] == "bare" and "# Bare" in card


def test_a_broken_header_is_named():
    with pytest.raises(UserError, match="header of the model card"):
        card_with_scores("---\nname: [1, 2\n---\ntext", result(0.5), "m")


@pytest.mark.parametrize("content", [None, "{", "[]", '{"mode": "strict"}'])
def test_a_folder_without_scores_is_a_users_mistake(tmp_path, capsys, content):
    if content is not None:
        (tmp_path / "scores.json").write_text(content)
    assert main([str(tmp_path), "user/name"]) == 2
    assert "scores.json" in capsys.readouterr().err


class Hub(BaseHTTPRequestHandler):
    """As much of the Hub as putting a card there needs; `server.card` None is a repository without one."""

    def reply(self, status, content=b"{}", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_GET(self):
        server = self.server
        if server.refuse:
            self.reply(server.refuse, b'{"error": "refused here"}', X_Error_Message="refused here")
        elif "/resolve/" in self.path:
            if server.card is None:
                self.reply(404, X_Error_Code="EntryNotFound", X_Repo_Commit="a" * 40)
            else:
                self.reply(200, server.card.encode(), ETag='"e"', X_Repo_Commit="a" * 40)
        else:
            self.reply(200, json.dumps({"id": "user/name", "sha": "a" * 40, "siblings": []}).encode())

    do_HEAD = do_GET

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.server.refuse:
            self.reply(self.server.refuse, b'{"error": "refused here"}', X_Error_Message="refused here")
        elif "/preupload/" in self.path:
            files = [
                {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
                for one in json.loads(body)["files"]
            ]
            self.reply(200, json.dumps({"files": files}).encode())
        elif "/commit/" in self.path:
            self.server.commits.append([json.loads(line) for line in body.splitlines()])
            self.reply(
                200,
                json.dumps(
                    {
                        "commitUrl": "https://huggingface.co/user/name/commit/" + "b" * 40,
                        "commitOid": "b" * 40,
                    }
                ).encode(),
            )
        else:
            self.reply(200)

    def log_message(self, *args):
        pass


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.card, server.refuse, server.commits = CARD, None, []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def push(folder, tmp_path, port, **more):
    environment = {
        **os.environ,
        "HF_ENDPOINT": f"http://127.0.0.1:{port}",
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_TOKEN": "hf_test",
        **more,
    }
    command = [sys.executable, "-m", "numsft.evaluation.card", str(folder), "user/name"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture
def scored(tmp_path):
    folder = tmp_path / "scored here"
    folder.mkdir()
    (folder / "scores.json").write_text(json.dumps(result(0.5)))
    return folder


def pushed_card(hub):
    import base64

    (commit,) = hub.commits
    (file,) = [line["value"] for line in commit if line["key"] == "file"]
    (head,) = [line["value"] for line in commit if line["key"] == "header"]
    assert file["path"] == "README.md"
    return base64.b64decode(file["content"]).decode(), head


def test_push_changes_the_repositorys_own_card_in_one_commit(hub, scored, tmp_path):
    done = push(scored, tmp_path, hub.server_port)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("/user/name/commit/" + "b" * 40)
    card, head = pushed_card(hub)
    assert card == card_with_scores(CARD, json.loads((scored / "scores.json").read_text()), "name")
    assert head["parentCommit"] == "a" * 40  # a card that changed meanwhile is not overwritten
    assert [path.name for path in scored.iterdir()] == ["scores.json"]


def test_push_makes_a_card_where_there_is_none(hub, scored, tmp_path):
    hub.card = None
    done = push(scored, tmp_path, hub.server_port)
    assert done.returncode == 0, done.stderr
    assert "# name" in pushed_card(hub)[0]


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_push_says_how_to_do_it_later(hub, scored, tmp_path, status):
    hub.refuse = status
    done = push(scored, tmp_path, hub.server_port)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "hf auth login" in done.stderr and len(done.stderr) < 900
    assert f"python -m numsft.evaluation.card '{scored}' user/name" in done.stderr


def test_push_without_a_network_says_how_to_do_it_later(hub, scored, tmp_path):
    hub.shutdown()
    hub.server_close()
    done = push(scored, tmp_path, hub.server_port)
    assert done.returncode == 1 and "Traceback" not in done.stderr and not hub.commits
    assert "numsft.evaluation.card" in done.stderr and len(done.stderr.strip().splitlines()) <= 4
    offline = push(scored, tmp_path, hub.server_port, HF_HUB_OFFLINE="1")
    assert offline.returncode == 1 and "Traceback" not in offline.stderr
