"""Whether, and from where, a run goes on: the rules for an output folder that an earlier run has used."""

from __future__ import annotations

import logging
from pathlib import Path

from numsft.checkpoints import checkpoints, newest_sound
from numsft.errors import RunError, UserError
from numsft.ranks import decided_by_main
from numsft.recipes import Recipe, changes_text, diff_recipes, load_recipe
from numsft.soundness import damage

logger = logging.getLogger(__name__)


def checkpoint_to_resume(recipe: Recipe) -> str | None:
    """Return the checkpoint to go on from, None to start from the beginning; the same on every rank.

    Raises:
        UserError: Where nothing is said about checkpoints that are there, where the one named is missing or
            damaged, or where the earlier run cannot be continued with this recipe.
        RunError: Where the main process's checkpoint is not to be seen from this rank.
    """
    found = decided_by_main(lambda: _decide(recipe))
    if found is not None and not Path(found).is_dir():
        raise RunError(
            f"{found}, which the main process resumes from, is not there on every machine: put output_dir on "
            "a file system that they share."
        )
    return found


def _decide(recipe: Recipe) -> str | None:
    training = recipe.training
    output_dir, wanted = Path(str(training.output_dir)), str(training.resume_from_checkpoint or "")
    if output_dir.exists() and not output_dir.is_dir():
        raise UserError(f"output_dir {output_dir} is a file: name a folder.")
    if wanted.lower() in ("", "false"):
        if checkpoints(output_dir) and not training.overwrite_output_dir:
            raise UserError(
                f"output_dir {output_dir} has checkpoints of an earlier run: give "
                "--resume_from_checkpoint true to continue it, or --overwrite_output_dir to delete them."
            )
        return None
    found: Path | None
    if wanted.lower() == "true":
        found, skipped = newest_sound(output_dir, weights_only=training.save_only_model)
        for line in skipped:
            logger.warning(line)
        if found is None:
            logger.warning("No sound checkpoint in %s: starting from the beginning.", output_dir)
            return None
    else:
        found = Path(wanted)
        if not found.is_dir():
            raise UserError(
                f"resume_from_checkpoint {found} is not a folder: name a checkpoint, or true for the newest."
            )
        reason = damage(found, weights_only=training.save_only_model)
        if reason:
            raise UserError(
                f"resume_from_checkpoint {found} is damaged ({reason}): name another, or true for the newest "
                "sound one."
            )
    _compare_with_earlier(recipe, found.parent / "resolved.yaml")
    return str(found)


def _compare_with_earlier(recipe: Recipe, earlier: Path) -> None:
    if not earlier.is_file():
        logger.warning("%s is missing: whether the recipe is still the same cannot be checked.", earlier)
        return
    diff = diff_recipes(load_recipe(earlier), recipe)
    if diff.forbidden:
        raise UserError(
            f"The run in {earlier.parent} cannot be continued with another objective, model or data: "
            f"{changes_text(diff.forbidden)}; restore them, or train into another output_dir."
        )
    if diff.other:
        logger.warning("Changed since the checkpoint: %s", changes_text(diff.other))
