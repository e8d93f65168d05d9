"""Opens a dataset: a local JSON, JSONL or Parquet file, or one on the Hub.

JSON is read line by line here rather than by Arrow, whose reader turns texts that look like dates into
timestamps and cannot name a bad line. The rows made from it are stored in the Hugging Face cache, keyed by
the file's size and time, by the settings and by this package's code, and so are memory-mapped like those of
any other dataset.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Value, load_dataset
from datasets.exceptions import DatasetsError
from datasets.fingerprint import Hasher
from pyarrow import ArrowException
from pyarrow.parquet import read_metadata

from numsft.errors import UserError

SUFFIXES = (".json", ".jsonl", ".parquet")
_BOM = b"\xef\xbb\xbf"
Rows = Iterator[tuple[str, dict[str, Any]]]
Examples = Callable[[], Iterable[dict[str, Any]]]


@dataclass(frozen=True)
class Source:
    """Rows that can be read again and again.

    Attributes:
        name: For messages.
        identity: What tells this content from another, for the cache; None keeps the rows in memory.
        rows: Starts reading: (where, row), `where` naming file and line or dataset and row.
    """

    name: str
    identity: Any
    rows: Callable[[], Rows]

    def columns(self) -> list[str]:
        """The columns of the first row."""
        for _, row in self.rows():
            return list(row)
        raise UserError(f"{self.name} has no rows; expected at least one training example")

    def build(self, examples: Examples, settings: Any, *, chat: bool) -> Dataset:
        """Stores prompt, completion and prompt_key, in the Hugging Face cache where there is an identity."""
        text: Any = [{"role": Value("string"), "content": Value("string")}] if chat else Value("string")
        features = Features({"prompt": text, "completion": text, "prompt_key": Value("int64")})
        if self.identity is None:
            return Dataset.from_list(list(examples()), features=features)
        fingerprint = Hasher.hash([_code(), self.identity, settings, chat])
        try:
            made = Dataset.from_generator(examples, features=features, fingerprint=fingerprint)
        except DatasetsError as error:
            if isinstance(error.__cause__, UserError):
                raise error.__cause__ from None
            raise
        assert isinstance(made, Dataset)
        return made


@cache
def _code() -> list[bytes]:
    """This package's source: rows prepared by another version are not taken from the cache."""
    return [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]


def open_source(name: str, config: str | None, split: str | None, *, fallback_split: str) -> Source:
    """Opens a local file or a Hub dataset.

    Args:
        name: A path ending in .json, .jsonl or .parquet, or a Hub id.
        config: The Hub dataset's configuration.
        split: The Hub dataset's split; None takes test, validation or `fallback_split`, the first there is.
        fallback_split: See `split`.
    """
    path = Path(name).expanduser()
    if path.suffix in SUFFIXES or path.exists() or name.startswith(("/", ".", "~")):
        if split not in (None, "train"):
            raise UserError(f"dataset_split is {split!r}, but the file {name} has no splits; leave it out")
        return _open_file(path)
    return _open_hub(name, config, split, fallback_split)


def _open_file(path: Path) -> Source:
    if not path.exists():
        raise UserError(f"the data file {path} does not exist (looked from {Path.cwd()}); correct the path")
    if not path.is_file() or path.suffix not in SUFFIXES:
        found = "a folder" if path.is_dir() else f"a file ending in {path.suffix!r}"
        raise UserError(f"{path} is {found}; expected one file ending in .json, .jsonl or .parquet")
    status = path.stat()
    identity = (str(path.resolve()), status.st_size, status.st_mtime_ns)
    if path.suffix != ".parquet":
        return Source(str(path), identity, lambda: _json_rows(path))
    try:
        if not read_metadata(path).num_rows:
            raise UserError(f"{path} has no rows; expected at least one training example")
        dataset = load_dataset("parquet", data_files=str(path), split="train")
    except UserError:
        raise
    except (DatasetsError, ArrowException, OSError, ValueError) as error:
        raise UserError(
            f"{path} is not a readable Parquet file ({_reason(error)}); write it again"
        ) from error
    return _from_dataset(str(path), dataset)


def _json_rows(path: Path) -> Rows:
    try:
        if _is_array(path):
            text = _decoded(path.read_bytes().removeprefix(_BOM), f"{path}")
            for i, row in enumerate(_parse(text, f"{path}")):
                yield f"{path}, row {i}", _mapping(row, f"{path}, row {i}")
            return
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                where = f"{path}, line {number}"
                text = _decoded(line.removeprefix(_BOM) if number == 1 else line, where)
                if text.strip():
                    yield where, _mapping(_parse(text, where), where)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); check its permissions") from error


def _is_array(path: Path) -> bool:
    with path.open("rb") as file:
        for line in file:
            start = line.removeprefix(_BOM).strip()
            if start:
                return start.startswith(b"[")
    return False


def _decoded(line: bytes, where: str) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{where} is not UTF-8 text ({error.reason} at byte {error.start}); save the file as UTF-8"
        ) from error


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not valid JSON ({error}); expected one JSON object a line") from error


def _mapping(row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise UserError(f"{where} is a {type(row).__name__}; expected a JSON object with the columns as keys")
    return row


def _open_hub(name: str, config: str | None, split: str | None, fallback: str) -> Source:
    failure: Exception | None = None
    for candidate in [split] if split else ["test", "validation", fallback]:
        try:
            return _from_dataset(name, load_dataset(name, config, split=candidate))
        except ValueError as error:  # an unknown split or configuration
            failure = error
        except (DatasetsError, OSError) as error:
            failure = error
            break
    assert failure is not None
    raise UserError(
        f"the dataset {name!r} could not be loaded from the Hub ({_reason(failure)}); check dataset, "
        "dataset_config, dataset_split and the connection, or name a local .json, .jsonl or .parquet file"
    ) from failure


def _from_dataset(name: str, dataset: Dataset) -> Source:
    def rows() -> Rows:
        for i, row in enumerate(dataset):
            yield f"{name}, row {i}", row

    return Source(name, dataset._fingerprint, rows)


def _reason(error: BaseException) -> str:
    """The first line of the deepest cause, cut to a readable length."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:300].rstrip(". ")
