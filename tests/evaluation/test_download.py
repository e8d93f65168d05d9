"""A file comes from a folder or is downloaded once; another file is refused; a failure is one sentence."""

import hashlib
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from numsft.errors import UserError
from numsft.evaluation.benchmarks import Benchmark, load_questions
from numsft.evaluation.download import address, benchmark_file

CONTENT = b'{"question": "How many?", "answer": "Two.\\n#### 2"}\n'


def small(content=CONTENT):
    digest = hashlib.sha256(content).hexdigest()
    return Benchmark(
        "gsm8k", "gsm8k/test.jsonl", "owner/repo", "data/test.jsonl", "c0ffee", digest, 1, "open"
    )


@contextmanager
def server(content=CONTENT, status=200):
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            return None

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}", requests
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.delenv("NUMSFT_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "numsft" / "data"


def files(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_file_is_downloaded_once_and_whole(cache, monkeypatch):
    with server() as (url, requests):
        monkeypatch.setenv("NUMSFT_DATA_URL", url)
        path = benchmark_file(small())
        assert path.read_bytes() == CONTENT
        assert benchmark_file(small()) == path
    assert requests == ["/owner/repo/c0ffee/data/test.jsonl"]
    assert files(cache) == ["test.jsonl"]


def test_another_file_is_refused_and_not_kept(cache, monkeypatch):
    with server(b"something else") as (url, _):
        monkeypatch.setenv("NUMSFT_DATA_URL", url)
        with pytest.raises(UserError, match=r"has sha256 [0-9a-f]{12}\.\.\., expected") as error:
            benchmark_file(small())
    assert "\n" not in str(error.value)
    assert files(cache) == []


def test_a_damaged_file_in_the_cache_is_fetched_again(cache, monkeypatch):
    (cache / "gsm8k").mkdir(parents=True)
    (cache / "gsm8k" / "test.jsonl").write_bytes(CONTENT[:10])
    with server() as (url, requests):
        monkeypatch.setenv("NUMSFT_DATA_URL", url)
        assert benchmark_file(small()).read_bytes() == CONTENT
    assert len(requests) == 1


@pytest.mark.parametrize("status", [404, 500])
def test_a_server_s_refusal_is_one_sentence(cache, monkeypatch, status):
    with server(status=status) as (url, _):
        monkeypatch.setenv("NUMSFT_DATA_URL", url)
        with pytest.raises(UserError, match="gsm8k could not be downloaded from http") as error:
            benchmark_file(small())
    assert "--data_dir" in str(error.value)
    assert "\n" not in str(error.value)
    assert files(cache) == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://host.invalid", "not an address"])
def test_a_missing_network_is_one_sentence(cache, monkeypatch, url):
    monkeypatch.setenv("NUMSFT_DATA_URL", url)
    with pytest.raises(UserError, match="could not be downloaded") as error:
        benchmark_file(small())
    assert "--data_dir" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_connection_that_breaks_leaves_nothing(cache, monkeypatch):
    class Cut(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(CONTENT)

        def log_message(self, *_):
            return None

    http = ThreadingHTTPServer(("127.0.0.1", 0), Cut)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    monkeypatch.setenv("NUMSFT_DATA_URL", f"http://127.0.0.1:{http.server_port}")
    try:
        with pytest.raises(UserError):
            benchmark_file(small(CONTENT + b"more"))
    finally:
        http.shutdown()
        http.server_close()
    assert files(cache) == []


def test_a_folder_is_read_in_place_of_a_download(monkeypatch, tmp_path):
    (tmp_path / "gsm8k").mkdir()
    (tmp_path / "gsm8k" / "test.jsonl").write_bytes(CONTENT)
    monkeypatch.setenv("NUMSFT_DATA_URL", "http://127.0.0.1:9")
    assert benchmark_file(small(), tmp_path).read_bytes() == CONTENT
    monkeypatch.setenv("NUMSFT_DATA_DIR", str(tmp_path))
    assert benchmark_file(small()).read_bytes() == CONTENT


def test_a_folder_without_the_file_or_with_another_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"test\.jsonl does not exist; expected the data of gsm8k there"):
        load_questions("gsm8k", tmp_path)
    (tmp_path / "gsm8k").mkdir()
    (tmp_path / "gsm8k" / "test.jsonl").write_bytes(CONTENT)
    with pytest.raises(UserError, match="sha256"):
        load_questions("gsm8k", tmp_path)


def test_the_default_address_is_the_public_repository(monkeypatch):
    monkeypatch.delenv("NUMSFT_DATA_URL", raising=False)
    assert address(small()) == "https://raw.githubusercontent.com/owner/repo/c0ffee/data/test.jsonl"
