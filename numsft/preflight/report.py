"""`Preflight`: what one split holds, as numbers and as the lines printed before training."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Preflight:
    """What one split holds. Counts of tokens leave out the first token of each row: it is never predicted.

    Attributes:
        name: The split, `train` or `eval`.
        raw_rows: Rows before tokenisation.
        rows: Rows with at least one trained token (of packed data, counted by document).
        sequences: Rows of the prepared dataset; fewer than `rows` when packed.
        dropped: Reason to number of rows that train nothing.
        tokens: Tokens in all.
        trainable_tokens: Tokens with a label.
        number_tokens: Number tokens with a label; None where the number vocabulary was not given.
        longest: Tokens of the longest row.
        truncated: Rows as long as the limit without a stop token at their end; None where it cannot be told.
        boundary: Of row 0, the text just before the first trained token and the text from it on.
        prefix_checked: Rows on which the prompt was tokenised alone.
        prefix_broken: Of these, rows whose prompt alone is not how the row begins.
        stop_token: The tokenizer's end-of-sequence token.
        stop_missing: Untruncated rows in which the stop token is not trained; None where it cannot be told.
        stop_repeated: Untruncated rows in which it is trained more than once; None where it cannot be told.
        overlap: Rows whose prompt is also in the other split; None where no other split was given.
    """

    name: str
    raw_rows: int
    rows: int
    sequences: int
    dropped: dict[str, int] = field(default_factory=dict)
    tokens: int = 0
    trainable_tokens: int = 0
    number_tokens: int | None = None
    longest: int = 0
    truncated: int | None = 0
    boundary: tuple[str, str] = ("", "")
    prefix_checked: int = 0
    prefix_broken: int = 0
    stop_token: str = ""
    stop_missing: int | None = None
    stop_repeated: int | None = None
    overlap: int | None = None

    def lines(self) -> list[str]:
        """The report, one fact a line; what needs a look starts with `warning`."""
        packed = f" packed into {self.sequences}" if self.sequences < self.rows else ""
        lines = [f"rows: {self.rows} of {self.raw_rows} train something{packed}"]
        if self.truncated is None:
            lines = [f"rows: {self.raw_rows}, packed into {self.sequences} sequences across their ends"]
        lines += [
            f"warning: {reason} for {count} of {self.raw_rows} rows" for reason, count in self.dropped.items()
        ]
        share = self.trainable_tokens / max(1, self.tokens)
        lines.append(f"trainable tokens: {self.trainable_tokens} of {self.tokens} ({share:.1%})")
        if self.number_tokens is not None:
            share = self.number_tokens / max(1, self.trainable_tokens)
            lines.append(f"number tokens: {self.number_tokens} ({share:.1%} of the trainable)")
            if not self.number_tokens:
                lines.append("warning: no trained token is a number token, the number loss does nothing")
        cut = "" if self.truncated is None else f", {self.truncated} rows cut off at the limit"
        lines.append(f"longest row: {self.longest} tokens{cut}")
        lines.append(f"row 0: ...{self.boundary[0]!r} | {self.boundary[1]!r}... (trained from the bar on)")
        if self.prefix_broken:
            lines.append(
                f"warning: the tokenised prompt is not how the row begins in {self.prefix_broken} of "
                f"{self.prefix_checked} rows checked: there the model is asked otherwise than trained"
            )
        elif self.prefix_checked:
            lines.append(f"prompt boundary: sound in all {self.prefix_checked} rows checked")
        if self.stop_missing is None:
            lines.append(
                f"end-of-sequence token {self.stop_token!r}: not checked, rows are split across sequences"
            )
        elif self.stop_missing or self.stop_repeated:
            lines.append(
                f"warning: the end-of-sequence token {self.stop_token!r} is not trained in "
                f"{self.stop_missing} and trained more than once in {self.stop_repeated} untruncated rows"
            )
        else:
            lines.append(
                f"end-of-sequence token {self.stop_token!r}: trained exactly once in every untruncated row"
            )
        if self.overlap is not None:
            mark = "warning: " if self.overlap else ""
            lines.append(f"{mark}prompts shared with the other split: {self.overlap}")
        return [_named(line, self.name) for line in lines]


def _named(line: str, name: str) -> str:
    """The split before the fact, but after `warning:`."""
    if line.startswith("warning: "):
        return line.replace("warning: ", f"warning: {name} data: ", 1)
    return f"{name} {line}"
