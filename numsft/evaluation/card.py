"""The scores on the model card: a section with the table, and metadata that the Hub reads (`model-index`).

    python -m numsft.evaluation.card FOLDER USER/NAME

puts the scores of a folder on the card of a model on the Hub.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from numsft.console import Parser, failed
from numsft.errors import RunError, UserError
from numsft.evaluation.table import scores_table, title

_BEGIN, _END = "<!-- numsft scores -->", "<!-- end of numsft scores -->"
_SECTION = re.compile(rf"\n*{re.escape(_BEGIN)}.*?{re.escape(_END)}\n*", re.DOTALL)

# What the Hub calls the data, where its name there is certain; the others go by the benchmark's own name.
_HUB_DATASETS = {
    "gsm8k": "openai/gsm8k",
    "math500": "HuggingFaceH4/MATH-500",
    "svamp": "ChilleD/SVAMP",
    "aqua": "deepmind/aqua_rat",
}


def card_with_scores(card: str, scores: Mapping[str, Any], model_name: str) -> str:
    """Return the card with the scores in its metadata and in one section; those of an earlier call go.

    Results in the metadata that others put there stay.

    Args:
        card: The card, Markdown with or without a YAML header.
        scores: The content of `scores.json`.
        model_name: The model's name in the metadata, where the card has none.

    Raises:
        UserError: If the card's header cannot be read.
    """
    from huggingface_hub import ModelCard

    try:
        parsed: Any = ModelCard(card)
    except (yaml.YAMLError, ValueError, TypeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"the header of the model card cannot be read ({reason[:200]}): repair the README.md"
        ) from error
    others = [
        result
        for result in parsed.data.eval_results or []
        if not (result.source_name or "").startswith("numsft")
    ]
    parsed.data.model_name = parsed.data.model_name or model_name
    parsed.data.eval_results = others + _results(scores)
    section = f"{_BEGIN}\n## Scores\n\n{_about(scores)}\n\n{scores_table(scores).strip()}\n{_END}"
    text = _SECTION.sub("\n\n", parsed.text).strip()
    return f"---\n{parsed.data.to_yaml()}\n---\n\n{text}\n\n{section}\n"


def _results(scores: Mapping[str, Any]) -> list[Any]:
    from huggingface_hub import EvalResult

    results = []
    for name, entry in scores["benchmarks"].items():
        metrics = [("accuracy", "accuracy", entry["accuracy"])]
        if (log_mae := entry.get("log_mae", {}).get("ln_eps")) is not None:
            metrics.append(("log_mae", "log-MAE (ln)", log_mae))
        for kind, metric_name, value in metrics:
            results.append(
                EvalResult(
                    task_type="text-generation",
                    task_name="Text generation",
                    dataset_type=_HUB_DATASETS.get(name, name),
                    dataset_name=title(name),
                    dataset_split="test",
                    metric_type=kind,
                    metric_name=f"{metric_name}, {scores['mode']} mode",
                    metric_value=round(value, 6),
                    source_name="numsft.evaluation",
                    source_url="https://arxiv.org/abs/2605.20369",
                )
            )
    return results


def _about(scores: Mapping[str, Any]) -> str:
    used = ", ".join(f"{package} {number}" for package, number in scores.get("versions", {}).items())
    return f"Measured with `python -m numsft.evaluation --mode {scores['mode']}` ({used})."


def push_scores(folder: str | Path, repo_id: str, *, token: str | None = None) -> str:
    """Add the scores of `folder` to the card of a model on the Hub; returns the commit's address.

    The repository's own card is taken, changed and put back as one commit; where it has none, a short one is
    made. The folder is left as it is, whatever happens.

    Args:
        folder: A folder with `scores.json`.
        repo_id: `USER/NAME` of a model.
        token: A token that may write there; None takes the one that is logged in.

    Raises:
        UserError: If the folder holds no readable `scores.json`.
        RunError: If the Hub cannot be reached or refuses; the message holds the command for later.
    """
    from huggingface_hub import HfApi

    scores = read_scores(folder)
    name = repo_id.split("/")[-1]
    api = HfApi(token=token)
    with _failures_for_later(folder, repo_id):
        parent, card = _card_of(api, repo_id)
    changed = card_with_scores(card or f"---\ntags:\n- numsft\n---\n\n# {name}\n", scores, name)
    with _failures_for_later(folder, repo_id):
        commit = api.upload_file(
            path_or_fileobj=changed.encode(),
            path_in_repo="README.md",
            repo_id=repo_id,
            commit_message="Add scores",
            parent_commit=parent,
        )
    return str(commit.commit_url)


@contextmanager
def _failures_for_later(folder: str | Path, repo_id: str) -> Iterator[None]:
    """Turn what the Hub's client raises into one sentence with the command that does it later."""
    try:
        yield
    # The client's transport is requests, httpx or httpx2 by its version; their errors share no other class.
    except Exception as error:
        raise RunError(
            f"the scores were not put on the card of {repo_id} ({_reason(error)}); they are whole in "
            f"{folder}: run `python -m numsft.evaluation.card {shlex.quote(str(folder))} {repo_id}` later"
        ) from error


def _card_of(api: Any, repo_id: str) -> tuple[str, str | None]:
    """Return the newest commit and the card in it, None where there is none."""
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    commit = api.model_info(repo_id).sha
    try:
        path = api.hf_hub_download(repo_id, "README.md", revision=commit)
    except LocalEntryNotFoundError:  # an EntryNotFoundError that means: not reached
        raise
    except EntryNotFoundError:
        return commit, None
    return commit, Path(path).read_text(encoding="utf-8")


def _reason(error: Exception) -> str:
    text = getattr(error, "server_message", None) or str(error) or type(error).__name__
    status = getattr(getattr(error, "response", None), "status_code", None)
    hint = ": log in with `hf auth login` or set HF_TOKEN" if status in (401, 403) else ""
    return f"{f'HTTP {status}, ' if status else ''}{text.strip().splitlines()[0][:200]}{hint}"


def read_scores(folder: str | Path) -> dict[str, Any]:
    """Read `folder/scores.json`.

    Raises:
        UserError: If it is not there or holds no scores.
    """
    path = Path(folder) / "scores.json"
    try:
        scores = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(scores["benchmarks"], dict) and isinstance(scores["mode"], str):
            return dict(scores)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): name a folder that was scored") from None
    except (ValueError, KeyError, TypeError):
        pass
    raise UserError(f"{path} holds no scores: name a folder that numsft.evaluation wrote")


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = Parser(prog="python -m numsft.evaluation.card", description="Put scores on a model card.")
    parser.add_argument("folder", type=Path, help="a folder with scores.json")
    parser.add_argument("repo_id", metavar="USER/NAME")
    try:
        options = parser.parse_args(argv)
        print(push_scores(options.folder, options.repo_id))
    except (UserError, RunError) as error:
        return failed(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
