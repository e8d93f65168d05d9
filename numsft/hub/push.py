"""Uploading a folder to the Hub: what goes up, what is tried again, and what a user reads when it fails."""

from __future__ import annotations

import logging
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from numsft.errors import RunError, UserError
from numsft.hub.failures import Patience, is_offline, reason, with_retries
from numsft.hub.text import named

logger = logging.getLogger(__name__)

NOT_UPLOADED = (
    "checkpoint-*/*",
    "*/checkpoint-*/*",
    "merged/*",
    "_*",
    ".*",
    # the pickled arguments of a run, with the token in them
    "*training_args.bin",
    "*optimizer*",
    "*scheduler.pt",
    "*scaler.pt",
    "*rng_state*.pth",
    "*global_step*/*",
    "*pytorch_model_fsdp_*/*",
    "*.partial",
)
"""Patterns of files that stay here: checkpoints, states of the optimiser, the merged copy beside an adapter,
hidden files and what names a token."""


@dataclass(frozen=True)
class Destination:
    """Where a folder goes.

    Attributes:
        repo_id: `USER/NAME`, or `NAME` for the user who is logged in.
        private: Whether a repository that has to be made is private; None is the account's default.
        revision: The branch, made where it is not there; None is `main`.
        token: None takes `HF_TOKEN` or what `hf auth login` stored.
    """

    repo_id: str
    private: bool | None = None
    revision: str | None = None
    token: str | None = None

    def command(self, folder: str | Path) -> str:
        """Return the command that pushes `folder` there; the token is not in it."""
        words = ["python", "-m", "numsft.hub", "push", str(Path(folder).resolve())]
        words += ["--hub_model_id", self.repo_id]
        words += ["--hub_revision", self.revision] if self.revision else []
        words += ["--private"] if self.private else []
        return shlex.join(words)


def check_repo_id(repo_id: str) -> None:
    """Raise a `UserError` for a name that no repository can have."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(repo_id)
    except HFValidationError:
        raise UserError(f"hub_model_id is {repo_id!r}, but should be USER/NAME as on the Hub") from None


def files_to_upload(folder: Path) -> dict[str, Path]:
    """Return the files of `folder` that go up, as path in the repository (posix) to path here."""
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    return {
        name: path
        for name, path in found.items()
        if path.is_file() and not any(fnmatch(name, pattern) for pattern in NOT_UPLOADED)
    }


def push_folder(
    folder: str | Path,
    destination: Destination,
    *,
    message: str = "Upload folder with numsft",
    patience: Patience | None = None,
) -> str:
    """Upload what `files_to_upload` names and return the address of the repository.

    The repository is made where it is not there. The card comes to name the repository in its heading and in
    its code, here too once the push has succeeded; nothing else in `folder` changes.

    Args:
        folder: The output of a training, a merged model, or any other folder.
        destination: Where it goes.
        message: Of the commit.
        patience: Of the connection; None is that of the environment.

    Raises:
        UserError: For what the user can mend (the login, rights, the name, offline mode).
        RunError: For a Hub or a network that fails. Both give the command to push later; `folder` is whole.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder: name the one that training or merging wrote")
    check_repo_id(destination.repo_id)
    files = files_to_upload(folder)
    if not files:
        raise UserError(f"{folder} holds nothing to upload: name the folder that training or merging wrote")
    return push_files(files, destination, message=message, home=folder, patience=patience)


def push_files(
    files: Mapping[str, Path],
    destination: Destination,
    *,
    message: str,
    home: Path,
    patience: Patience | None = None,
) -> str:
    """Upload files under the names they are given; `home` is the folder that the message of a failure names.

    Args:
        files: Path in the repository to path here.
        destination: As for `push_folder`.
        message: As for `push_folder`.
        home: Where all of them, or their successors, lie.
        patience: As for `push_folder`.

    Raises:
        UserError: As for `push_folder`.
        RunError: As for `push_folder`.
    """
    patience = patience or Patience.from_environment()
    try:
        repo_id, url = open_repository(destination, patience)
        cards = _cards_naming(files, repo_id)
        with _staged(files, cards) as stage:
            from huggingface_hub import HfApi

            api = HfApi(token=destination.token)
            with_retries(
                lambda: api.upload_folder(
                    repo_id=repo_id,
                    folder_path=stage,
                    commit_message=message,
                    revision=destination.revision,
                ),
                patience,
            )
    except Exception as error:
        # Whatever the client raises: a finished run must not end in it.
        logger.debug("the push failed", exc_info=error)
        raise failure(error, destination, home) from error
    for path, text in cards.items():
        _write_card(path, text)
    return url


def open_repository(destination: Destination, patience: Patience) -> tuple[str, str]:
    """Make the repository and the branch where they are not there; return the full name and the address."""
    from huggingface_hub import HfApi, get_session

    get_session().timeout = patience.timeout
    api = HfApi(token=destination.token)
    made = with_retries(
        lambda: api.create_repo(destination.repo_id, private=destination.private, exist_ok=True), patience
    )
    if destination.revision:
        branch = destination.revision
        with_retries(lambda: api.create_branch(made.repo_id, branch=branch, exist_ok=True), patience)
    return made.repo_id, str(made)


def failure(error: Exception, destination: Destination, home: Path) -> UserError | RunError:
    """Return the error to raise: reason and advice, then that `home` is whole and the command for later."""
    kind, text = reason(error, destination.repo_id)
    offline = "HF_HUB_OFFLINE=0 " if is_offline(error) else ""
    return kind(
        f"Pushing to {destination.repo_id} failed: {text}.\n"
        f"{home} is whole on this machine. To push it later:\n"
        f"{offline}{destination.command(home)}"
    )


def _cards_naming(files: Mapping[str, Path], repo_id: str) -> dict[Path, str]:
    """The card at the top, where it has to change to name the repository."""
    card = files.get("README.md")
    if card is None:
        return {}
    text = card.read_text(encoding="utf-8")
    changed = named(text, repo_id)
    return {card: changed} if changed != text else {}


@contextmanager
def _staged(files: Mapping[str, Path], cards: Mapping[Path, str]) -> Iterator[Path]:
    """A folder of links to the files, with the changed card in it: what the client is given to upload."""
    with tempfile.TemporaryDirectory(prefix="numsft-push-") as folder:
        for name, path in files.items():
            target = Path(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path in cards:
                target.write_text(cards[path], encoding="utf-8")
                continue
            try:
                target.symlink_to(path.resolve())
            except OSError:  # a system without links
                shutil.copy2(path, target)
        yield Path(folder)


def _write_card(path: Path, text: str) -> None:
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        logger.warning("The card here still has its old name: %s cannot be written (%s).", path, error)
