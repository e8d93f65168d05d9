"""Why an item cannot be remapped. A reason is one of a few short phrases, which the coverage table counts."""

REASONS = {
    "unreadable answer": "no `#### number` at the end",
    "disputed gold": "an audit found the data's own answer wrong, or one of two readings",
    "no annotation": "the solution has no <<...=...>>",
    "unreadable annotation": "an annotation is more than numbers, + - * / and %",
    "inexact step": "a step's value is not exactly its expression's, often a rounded one",
    "last step is not the answer": "the last annotation is not the gold answer",
    "no numeral": "the question has no numeral that may change",
    "odd numeral": "a time, date, range, ratio, label, ordinal, mixed number or digits in a word",
    "duplicate numeral": "two numerals of the question may be the same number",
    "implicit word": "a numeral's value is also meant by a word (half: 2, week: 7, dozen: 12)",
    "step or numeral": "a literal may be an earlier step or a numeral",
    "two equal steps": "a literal may be one of two earlier steps",
    "step or constant": "a literal may be an earlier step or a constant",
    "literal reused": "two literals are the same numeral: one of them may be something else",
    "unexplained constant": "a literal is no numeral, no step and no constant that the question names",
    "unused numeral": "a numeral of the question is in no step",
    "unused step": "a step does not feed the answer",
    "prose disagrees": "the solution's own words compute something else than the annotation",
    "no valid draw": "no new values keep every step's sign, wholeness and order",
}


class Rejected(Exception):
    """An item is refused.

    Attributes:
        reason: A key of `REASONS`.
        detail: What was found, for people.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        """Keeps reason and detail."""
        assert reason in REASONS, reason
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail
