"""The study file: a base recipe, objectives as overrides of it, seeds.

base: ../recipes/quickstart.yaml
overrides: {max_steps: 100}       # of every run
objectives:
  ce: {number_loss: none}
  del: {number_loss: del}
seeds: [0, 1, 2]
baseline: ce
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from numsft.errors import UserError
from numsft.recipe_arguments import parse_overrides
from numsft.recipe_yaml import plain, read_mapping

KEYS = ("base", "overrides", "objectives", "seeds", "baseline")
_OURS = ("seed", "output_dir", "resume_from_checkpoint", "overwrite_output_dir", "extends")
"""Keys that a study sets itself."""


@dataclass(frozen=True)
class Study:
    """A study file, checked.

    Attributes:
        path: The file.
        base: The recipe that every run extends.
        objectives: Name -> overrides, those of all runs included.
        seeds: One run of each objective a seed.
        baseline: The objective that the others are compared with.
        overrides: Keys of a recipe that every run has.
        given: Keys that the command line sets for every run, such as where the data lies; they win.
    """

    path: Path
    base: Path
    objectives: dict[str, dict[str, Any]]
    seeds: tuple[int, ...]
    baseline: str
    overrides: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.stem

    def recipe(self, objective: str, seed: int, output_dir: Path) -> str:
        """Return the recipe of one run, YAML."""
        values = {
            "extends": str(self.base.resolve()),
            **self.overrides,
            **self.objectives[objective],
            **self.given,
            "seed": seed,
            "output_dir": str(output_dir),
        }
        return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def load_study(path: str | Path, given: Sequence[str] = ()) -> Study:
    """Read and check a study file.

    Args:
        path: The file.
        given: Arguments of the command line that override every run, such as `["--max_steps", "10"]`.

    Raises:
        UserError: For a file, key or value that cannot be used, in one sentence.
    """
    path = Path(path)
    values = {key: plain(value) for key, value in read_mapping(path).items()}
    for key in values:
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; a study has {', '.join(KEYS)}"
            raise UserError(f"{path}: {key} is no key of a study{hint}")
    for key in ("base", "objectives"):
        if key not in values:
            raise UserError(f"{path} has no {key}: a study names its base recipe and its objectives")
    base = path.parent / str(values["base"])
    if not base.is_file():
        raise UserError(f"{path}: base is {values['base']!r}, but {base} does not exist: correct the path")
    overrides = _overrides(path, "overrides", values.get("overrides") or {})
    objectives = _objectives(path, values["objectives"])
    seeds = values.get("seeds", [0])
    if (
        not isinstance(seeds, list)
        or not seeds
        or len(set(map(str, seeds))) != len(seeds)
        or not all(type(seed) is int and seed >= 0 for seed in seeds)
    ):
        raise UserError(f"{path}: seeds is {seeds!r}, but should be a list of different numbers: [0, 1, 2]")
    baseline = values.get("baseline", next(iter(objectives)))
    if baseline not in objectives:
        raise UserError(f"{path}: baseline is {baseline!r}, which is none of {', '.join(objectives)}")
    set_for_all = _overrides(path, "the command line", plain(parse_overrides(given)))
    return Study(path, base, objectives, tuple(seeds), baseline, overrides, set_for_all)


def _objectives(path: Path, given: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(given, dict) or not given:
        raise UserError(
            f"{path}: objectives should map names to overrides, such as ce: {{number_loss: none}}"
        )
    for name in given:
        if not re.fullmatch(r"[\w.+-]+", str(name)):
            raise UserError(
                f"{path}: objective {name!r} becomes a folder's name: use letters, digits and ._+-"
            )
    return {str(name): _overrides(path, f"objectives.{name}", value) for name, value in given.items()}


def _overrides(path: Path, where: str, given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise UserError(f"{path}: {where} is {given!r}, but should be keys of a recipe")
    for key in _OURS:
        if key in given:
            raise UserError(f"{path}: {where} sets {key}, which the study sets for each run: take it out")
    return given
