"""What a trainer does with the Hub: transformers' interface, over pushes that cannot end a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numsft.hub.background import RunPusher
from numsft.hub.push import Destination, check_repo_id


class HubMixin:
    """`Trainer`'s methods for the Hub, to stand before it among the bases.

    `Trainer`'s own end a run where the Hub cannot be reached, and are silent where a push in the background
    fails. These log it.
    """

    args: Any
    state: Any
    control: Any
    callback_handler: Any
    is_world_process_zero: Any
    save_model: Any
    hub_model_id: Any
    _run_pusher: RunPusher | None = None

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        """Settle the repository's name; it is made by the first push, not by a trainer that only dry-runs."""
        repo_id = self.args.hub_model_id or Path(str(self.args.output_dir)).absolute().name
        check_repo_id(repo_id)
        self.hub_model_id, self.push_in_progress = repo_id, None

    def push_to_hub(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Save the model with its card in `output_dir` and upload that folder, without checkpoints.

        Args:
            commit_message: Of the commit.
            blocking: Always so; kept for `Trainer`'s signature.
            token: Instead of `hub_token`.
            revision: Branch, instead of `hub_revision`.
            private: Instead of `hub_private_repo`.
            **kwargs: `Trainer`'s, for its card; ours takes nothing from them.

        Returns:
            The repository's address; None on other processes than the main one, and where the push failed,
            which is logged with the command to push later.
        """
        self.save_model(_internal_call=True)
        return self.push_output(commit_message, token=token, revision=revision, private=private)

    def push_output(self, message: str | None = None, **destination: str | bool | None) -> str | None:
        """Upload `output_dir` as it is; otherwise as `push_to_hub`."""
        if not self.is_world_process_zero():
            return None
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        return self._pusher(**destination).push_end(message or "End of training")

    def _open_hub(self) -> None:
        if self.args.push_to_hub and self.is_world_process_zero():
            self._pusher().open()

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        if not self.is_world_process_zero():
            return
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        self._pusher().push_save(checkpoint_folder, f"Training in progress, step {self.state.global_step}")

    def _finish_current_push(self) -> None:
        if self._run_pusher is not None:
            self._run_pusher.wait()

    def _pusher(self, **changes: Any) -> RunPusher:
        """The run's one pusher, pointed elsewhere where something is given."""
        args = self.args
        if self.hub_model_id is None:
            self.init_hf_repo()
        settings: dict[str, Any] = {
            "private": args.hub_private_repo,
            "revision": args.hub_revision,
            "token": args.hub_token,
        }
        settings |= {name: value for name, value in changes.items() if value is not None}
        destination = Destination(str(self.hub_model_id), **settings)
        if self._run_pusher is None:
            strategy = str(getattr(args.hub_strategy, "value", args.hub_strategy))
            output_dir = str(args.output_dir)
            self._run_pusher = RunPusher(output_dir, destination, strategy, args.hub_always_push)
        self._run_pusher.destination = destination
        return self._run_pusher
