"""`samples.jsonl` while it grows: every answer is on disk before the next is asked for.

A question may have several lines until the run is finished: later ones add to earlier ones. `settings.json`
beside it says what the answers belong to, so that a run never continues somebody else's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from numsft.errors import RunError, UserError

Key = tuple[str, int]
"""Benchmark and index of a question."""


class SampleStore:
    """The rows of one run, in memory and in `output_dir/samples.jsonl`.

    Attributes:
        rows: The rows by (benchmark, index).
        path: The file.
        settings: What they belong to.
    """

    def __init__(self, output_dir: str | Path, settings: Mapping[str, Any]) -> None:
        """Read what an earlier run with the same settings left; nothing is written before the first answer.

        Args:
            output_dir: Folder, made if it is not there.
            settings: Whatever the answers depend on, as JSON can hold it.

        Raises:
            UserError: If samples of other settings are there, or the folder cannot be written.
        """
        self._folder = Path(output_dir)
        self.path = self._folder / "samples.jsonl"
        self.rows: dict[Key, dict[str, Any]] = {}
        self.settings: dict[str, Any] = json.loads(json.dumps(settings))
        self._file: IO[str] | None = None
        self._whole = 0
        if self.path.exists():
            found = _read_settings(self._folder / "settings.json")
            if found != self.settings:
                raise UserError(_difference(self._folder, found, self.settings))
            self._read()
        if reason := _why_not_writable(self._folder):
            raise UserError(_unwritable(self._folder, reason))

    def _read(self) -> None:
        """Read the rows, up to what a kill left of a last line."""
        with self.path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                try:
                    self._merge(json.loads(line))
                except (ValueError, KeyError, TypeError):
                    raise UserError(
                        f"{self.path} has a line that is no sample ({line[:60]!r}): take it out, or name "
                        "another --output_dir"
                    ) from None
                self._whole += len(line)

    def _merge(self, row: dict[str, Any]) -> None:
        self.rows.setdefault((row["benchmark"], row["index"]), {}).update(row)

    def _open(self) -> IO[str]:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._folder / "settings.json", json.dumps(self.settings, indent=2) + "\n")
            file = self.path.open("a", encoding="utf-8")
            file.truncate(self._whole)
        except OSError as error:
            raise UserError(_unwritable(self._folder, error.strerror)) from error
        return file

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Append rows, or more fields of rows, and have them on disk.

        Raises:
            UserError: If the folder cannot be written.
            RunError: If the disk is full or fails; what was added before is safe.
        """
        self._file = self._file or self._open()
        try:
            for row in rows:
                self._merge(row)
                self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise RunError(_interrupted(self.path, error)) from error

    def finish(self, rows: Iterable[dict[str, Any]]) -> None:
        """Replace the file by the finished rows, one line a question.

        Raises:
            RunError: If the disk is full or fails; what was added before is safe.
        """
        if self._file is not None:
            self._file.close()
        try:
            write_rows(self.path, rows)
        except OSError as error:
            raise RunError(_interrupted(self.path, error)) from error


def write_output(output: Path, rows: Iterable[dict[str, Any]]) -> int:
    """Write rows to a command's `--output`, one JSON object a line, all or nothing; return their number.

    Raises:
        UserError: If it cannot be written.
    """
    unfinished = output.with_name(output.name + ".part")
    count = 0
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("w", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps(row) + "\n")
                count += 1
        os.replace(unfinished, output)
    except OSError as error:
        raise UserError(f"cannot write --output {output} ({error.strerror}); name a writable file") from error
    return count


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write one JSON object a line, all or nothing."""
    write_atomically(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a kill leaves the old one or the new one."""
    unfinished = path.with_name(path.name + ".part")
    with unfinished.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def _why_not_writable(folder: Path) -> str:
    """Why a folder cannot be made or written, `""` where it can; nothing is made to find out."""
    for place in (folder, *folder.absolute().parents):
        if place.exists():
            if not place.is_dir():
                return f"{place} is a file"
            return "" if os.access(place, os.W_OK | os.X_OK) else "no permission"
    return ""


def _unwritable(folder: Path, reason: str | None) -> str:
    return f"cannot write to {folder} ({reason}): name a folder that can be written with --output_dir"


def _interrupted(path: Path, error: OSError) -> str:
    return f"{path} cannot be written ({error.strerror}): make room, and the same command goes on from there"


def _read_settings(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _difference(folder: Path, found: dict[str, Any] | None, wanted: dict[str, Any]) -> str:
    way_out = "name another --output_dir, or remove that folder"
    if found is None:
        return f"{folder} holds samples.jsonl without the settings.json that says whose they are: {way_out}"
    keys = [key for key in {**found, **wanted} if found.get(key) != wanted.get(key)]
    first = keys[0]
    return (
        f"{folder} holds samples of a run with {first} {_short(found.get(first))}, not "
        f"{_short(wanted.get(first))}"
        + (f" (and other {', '.join(keys[1:])})" if keys[1:] else "")
        + f": {way_out}"
    )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
