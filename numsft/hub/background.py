"""Pushing a run: its saves in the background, its end in the foreground, and never at its expense."""

from __future__ import annotations

import logging
import os
import re
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path

from numsft.errors import RunError, UserError
from numsft.hub.failures import Patience
from numsft.hub.failures import reason as reason_of
from numsft.hub.push import Destination, files_to_upload, open_repository, push_files, push_folder

logger = logging.getLogger(__name__)

_SNAPSHOT = ".push"
_NEVER = "training_args.bin"
"""transformers pickles the token into it."""


class RunPusher:
    """Pushes the checkpoints of a run as they are saved, and its result.

    transformers' own pushes fail in silence where they run in the background, and elsewhere end the run;
    here each failure is one line, and that of the last push has the command to push later. Used by the main
    process only.
    """

    def __init__(self, output_dir: str | Path, destination: Destination, strategy: str, always: bool) -> None:
        """Make a pusher that has not been in touch with the Hub.

        Args:
            output_dir: Of the run.
            destination: Where it goes.
            strategy: transformers' `hub_strategy`: `end`, `every_save`, `checkpoint` or `all_checkpoints`.
            always: transformers' `hub_always_push`: wait for an unfinished push, leave none out.
        """
        self.output_dir = Path(output_dir)
        self.destination = destination
        self.strategy = strategy
        self.always = always
        self._thread: threading.Thread | None = None
        self._said: set[str] = set()

    def open(self) -> None:
        """Look before training whether the Hub can be written to, and say so where it cannot."""
        try:
            open_repository(self.destination, Patience.from_environment())
        except Exception as error:  # whatever the client raises: training goes on
            text = reason_of(error, self.destination.repo_id)[1]
            self._say_once(
                f"The Hub cannot be written to now: {text}. Training starts; each save tries again."
            )

    def push_save(self, checkpoint: str | Path, message: str) -> None:
        """Push a checkpoint's model in the background; left out while the last push is still under way."""
        if self.strategy == "end" or (self.is_busy() and not self.always):
            return
        self.wait()
        try:
            files = self._snapshot(Path(checkpoint))
        except OSError as error:
            self._say_once(f"{checkpoint} is not pushed: {error}. Training goes on.")
            return
        # A daemon: a run that is told to stop does not wait for an upload.
        self._thread = threading.Thread(
            target=self._push, args=(files, message), name="numsft-push", daemon=True
        )
        self._thread.start()

    def push_end(self, message: str) -> str | None:
        """Push the output folder; return the repository's address, None where that failed (and say so)."""
        self.wait()
        try:
            return push_folder(self.output_dir, self.destination, message=message)
        except (UserError, RunError) as error:
            logger.warning("%s", error)
            return None

    def is_busy(self) -> bool:
        """Whether a push is under way in the background."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self) -> None:
        """Wait for the push in the background."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _push(self, files: Mapping[str, Path], message: str) -> None:
        try:
            push_files(files, self.destination, message=message, home=self.output_dir)
        except (UserError, RunError) as error:
            self._say_once(f"{str(error).splitlines()[0]} Training goes on, and the next save tries again.")
        finally:
            shutil.rmtree(self.output_dir / _SNAPSHOT, ignore_errors=True)

    def _snapshot(self, checkpoint: Path) -> dict[str, Path]:
        """Link the files under another name, since the checkpoint may be deleted while they are sent."""
        wanted = files_to_upload(checkpoint)
        if (self.output_dir / "resolved.yaml").is_file():
            wanted["resolved.yaml"] = self.output_dir / "resolved.yaml"
        if self.strategy in ("checkpoint", "all_checkpoints"):
            folder = "last-checkpoint" if self.strategy == "checkpoint" else checkpoint.name
            whole = (path for path in checkpoint.rglob("*") if path.is_file() and path.name != _NEVER)
            wanted |= {f"{folder}/{path.relative_to(checkpoint).as_posix()}": path for path in whole}
        stage = self.output_dir / _SNAPSHOT
        shutil.rmtree(stage, ignore_errors=True)
        files = {}
        for name, path in wanted.items():
            files[name] = stage / name
            files[name].parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(path, files[name])
            except OSError:  # a file system without links
                shutil.copy2(path, files[name])
        return files

    def _say_once(self, text: str) -> None:
        # The step and the like differ between failures of one cause.
        key = re.sub(r"\d+", "", text)
        if key not in self._said:
            self._said.add(key)
            logger.warning("%s", text)
