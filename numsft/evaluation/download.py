"""Where a benchmark's file is: a given folder, or the cache, filled once from the public repository.

`NUMSFT_DATA_DIR` names the folder where no `--data_dir` is given, `NUMSFT_DATA_URL` another server than
raw.githubusercontent.com. A file whose sha256 is not the expected one is refused: scores on other data are
not comparable.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from numsft.errors import UserError

if TYPE_CHECKING:
    from numsft.evaluation.benchmark_files import Benchmark

_SERVER = "https://raw.githubusercontent.com"
_TIMEOUT_SECONDS = 30
# Far above the largest benchmark (4 MB): what a wrong address sends is not read to its end.
_MAX_BYTES = 64 * 2**20


def benchmark_file(benchmark: Benchmark, data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The benchmark's file, its sha256 checked.

    Args:
        benchmark: Which one.
        data_dir: Folder that holds `benchmark.path`; None for `NUMSFT_DATA_DIR`, and where that is unset for
            the download cache (`numsft/data` in `XDG_CACHE_HOME` or `~/.cache`).

    Raises:
        UserError: The file is not in the folder given, is another file, or cannot be downloaded.
    """
    folder = data_dir if data_dir is not None else os.environ.get("NUMSFT_DATA_DIR") or None
    if folder is not None:
        path = Path(folder) / benchmark.path
        if not path.is_file():
            raise UserError(
                f"{path} does not exist; expected the data of {benchmark.name} there; leave "
                "--data_dir and NUMSFT_DATA_DIR out to download it"
            )
        _check(path.read_bytes(), benchmark, str(path))
        return path
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "numsft" / "data"
    path = cache / benchmark.path
    # A damaged file in the cache is ours, not the user's: it is fetched again.
    if not path.is_file() or _sha256(path.read_bytes()) != benchmark.sha256:
        url = address(benchmark)
        content = _fetch(url, benchmark)
        _check(content, benchmark, url)
        _write(path, content)
    return path


def address(benchmark: Benchmark) -> str:
    """The file's address, at the commit that was checked."""
    server = os.environ.get("NUMSFT_DATA_URL") or _SERVER
    return (
        f"{server.rstrip('/')}/{benchmark.repo}/{benchmark.commit}/{urllib.parse.quote(benchmark.repo_path)}"
    )


def _fetch(url: str, benchmark: Benchmark) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as reply:
            content: bytes = reply.read(_MAX_BYTES + 1)
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise UserError(
            f"{benchmark.name} could not be downloaded from {url} ({str(reason)[:120]}); "
            "check the network, or pass --data_dir with a folder that holds it"
        ) from None
    return content


def _check(content: bytes, benchmark: Benchmark, where: str) -> None:
    found = _sha256(content)
    if found != benchmark.sha256:
        raise UserError(
            f"{where} has sha256 {found[:12]}..., expected {benchmark.sha256[:12]}... for {benchmark.name}; "
            f"use {benchmark.repo_path} of {benchmark.repo} at commit {benchmark.commit[:12]}"
        )


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write(path: Path, content: bytes) -> None:
    """Writes the file whole or not at all, also with several processes at it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    except OSError as error:
        raise UserError(
            f"the download cache {path.parent} cannot be written ({error.strerror}); set XDG_CACHE_HOME to a "
            "folder that can, or pass --data_dir"
        ) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
