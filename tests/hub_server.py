"""A small Hub on this machine: enough of its HTTP interface for the real client to push and to load.

Failures are put in with `Fault`: which requests, how often, and what happens to them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import yaml

TOKEN = "hf_good"


@dataclass
class Fault:
    """What happens to requests whose `METHOD path` matches.

    `action` is a status, "close" (the socket is closed before the body is read), "cut" (in the middle of it),
    "html" (a 502 page that is not JSON) or "silent" (no answer).
    """

    pattern: str
    action: int | str
    times: int = 10**6


@dataclass
class Repository:
    private: bool = False
    files: dict[str, bytes] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)
    branches: set[str] = field(default_factory=lambda: {"main"})

    @property
    def sha(self) -> str:
        return hashlib.sha1(repr(self.commits).encode()).hexdigest()


class HubServer:
    """The server; use as a context manager. `stop` and `start` keep its port and its contents."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.faults: list[Fault] = []
        self._port = 0
        self.start()

    def start(self) -> None:
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), handler)
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> HubServer:
        return self

    def __exit__(self, *exc) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def count(self, pattern: str) -> int:
        return sum(bool(re.search(pattern, request)) for request in self.requests)

    def fault_for(self, request: str) -> Fault | None:
        for fault in self.faults:
            if fault.times > 0 and re.search(fault.pattern, request):
                fault.times -= 1
                return fault
        return None


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *args) -> None:
        pass

    def _handle(self) -> None:
        self.path = unquote(urlsplit(self.path).path)
        request = f"{self.command} {self.path}"
        self.hub.requests.append(request)
        fault = self.hub.fault_for(request)
        if fault and fault.action in ("close", "cut"):
            if fault.action == "cut":
                self.rfile.read(10)
            self.close_connection = True
            self.connection.close()
            return
        if fault and fault.action == "silent":
            time.sleep(20)
            self.close_connection = True
            return
        body = self._body()
        if fault and fault.action == "html":
            self._answer(502, b"<html>Bad gateway</html>", {"Content-Type": "text/html"})
        elif fault:
            self._json(fault.action, {"error": f"injected {fault.action}"})
        elif self.command != "PUT" and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._json(401, {"error": "Invalid username or password."})
        else:
            self._route(body)

    do_GET = do_HEAD = do_POST = do_PUT = _handle

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _route(self, body: bytes) -> None:
        for method, pattern, answer in ROUTES:
            found = re.fullmatch(pattern, self.path)
            if found and self.command in method:
                repository = found.groupdict().get("repo")
                if repository and repository not in self.hub.repositories:
                    self._json(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
                else:
                    answer(self, body, **found.groupdict())
                return
        self._json(404, {"error": f"no such route: {self.command} {self.path}"})

    def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _json(self, status: int, content: dict | list, headers: dict[str, str] | None = None) -> None:
        headers = {"Content-Type": "application/json", **(headers or {})}
        self._answer(status, json.dumps(content).encode(), headers)

    # The routes.

    def create(self, body: bytes) -> None:
        asked = json.loads(body)
        repo = f"{asked.get('organization') or 'somebody'}/{asked['name']}"
        existed = repo in self.hub.repositories
        if not existed:
            self.hub.repositories[repo] = Repository(private=asked.get("visibility") == "private")
        answer = {"url": f"{self.hub.url}/{repo}", "name": repo}
        self._json(409 if existed else 200, answer | ({"error": "You already have it"} if existed else {}))

    def branch(self, body: bytes, repo: str, name: str) -> None:
        branches = self.hub.repositories[repo].branches
        status = 409 if name in branches else 200
        branches.add(name)
        self._json(status, {})

    def validate(self, body: bytes) -> None:
        text = json.loads(body)["content"]
        header = yaml.safe_load(text.split("---\n")[1]) if text.startswith("---\n") else {}
        bases = header.get("base_model") or "a/b"
        if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", bases):
            message = f'"base_model" with value "{bases}" is not valid.'
            self._json(400, {"errors": [{"message": message}], "warnings": []})
        else:
            self._json(200, {"errors": [], "warnings": []})

    def preupload(self, body: bytes, repo: str, revision: str) -> None:
        if revision not in self.hub.repositories[repo].branches:
            return self._json(404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})
        there = self.hub.repositories[repo].files
        answer = []
        for file in json.loads(body)["files"]:
            lfs = file["path"].endswith((".safetensors", ".pt", ".bin", ".pth"))
            oid = _oid(there[file["path"]], lfs) if file["path"] in there else None
            mode = "lfs" if lfs else "regular"
            answer.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        self._json(200, {"files": answer})

    def batch(self, body: bytes, repo: str) -> None:
        objects = []
        for asked in json.loads(body)["objects"]:
            entry = {"oid": asked["oid"], "size": asked["size"]}
            if asked["oid"] not in self.hub.objects:
                upload = {"href": f"{self.hub.url}/lfs/{asked['oid']}?X-Amz-Signature=secret"}
                entry["actions"] = {"upload": upload}
            objects.append(entry)
        self._json(200, {"transfer": "basic", "objects": objects})

    def put(self, body: bytes, oid: str) -> None:
        if hashlib.sha256(body).hexdigest() != oid:
            return self._json(400, {"error": "the content is not what was announced"})
        self.hub.objects[oid] = body
        self._answer(200, b"")

    def commit(self, body: bytes, repo: str, revision: str) -> None:
        repository = self.hub.repositories[repo]
        files = {}
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "header":
                summary = value["summary"]
            elif entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.hub.objects[value["oid"]]
        repository.files |= files
        repository.commits.append(summary)
        url = f"{self.hub.url}/{repo}/commit/{repository.sha}"
        self._json(200, {"commitUrl": url, "commitOid": repository.sha, "success": True})

    def info(self, body: bytes, repo: str, revision: str | None = None) -> None:
        repository = self.hub.repositories[repo]
        siblings = [{"rfilename": name} for name in repository.files]
        self._json(200, {"id": repo, "sha": repository.sha, "siblings": siblings, "private": False})

    def tree(self, body: bytes, repo: str, revision: str) -> None:
        files = self.hub.repositories[repo].files
        self._json(
            200,
            [{"type": "file", "path": n, "size": len(c), "oid": _oid(c, False)} for n, c in files.items()],
        )

    def resolve(self, body: bytes, repo: str, revision: str, path: str) -> None:
        repository = self.hub.repositories[repo]
        headers = {"X-Repo-Commit": repository.sha}
        if path not in repository.files:
            return self._json(404, {"error": "no"}, headers | {"X-Error-Code": "EntryNotFound"})
        content = repository.files[path]
        headers |= {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "Accept-Ranges": "bytes"}
        self._answer(200, content, headers)


def _oid(content: bytes, lfs: bool) -> str:
    if lfs:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


_REPO = r"(?P<repo>[\w.-]+/[\w.-]+)"
ROUTES = [
    ("POST", r"/api/repos/create", _Handler.create),
    ("POST", r"/api/validate-yaml", _Handler.validate),
    ("POST", rf"/api/models/{_REPO}/branch/(?P<name>.+)", _Handler.branch),
    ("POST", rf"/api/models/{_REPO}/preupload/(?P<revision>[^/]+)", _Handler.preupload),
    ("POST", rf"/{_REPO}\.git/info/lfs/objects/batch", _Handler.batch),
    ("PUT", r"/lfs/(?P<oid>\w+)", _Handler.put),
    ("POST", rf"/api/models/{_REPO}/commit/(?P<revision>[^/]+)", _Handler.commit),
    ("GET", rf"/api/models/{_REPO}", _Handler.info),
    ("GET", rf"/api/models/{_REPO}/revision/(?P<revision>[^/]+)", _Handler.info),
    ("GET", rf"/api/models/{_REPO}/tree/(?P<revision>[^/]+)", _Handler.tree),
    ("GET HEAD", rf"/{_REPO}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", _Handler.resolve),
]
