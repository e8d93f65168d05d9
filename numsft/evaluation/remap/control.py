"""The control of the remapping: a rewrite that keeps every numeral and number word and changes other words.

A model that loses accuracy on remapped items might only have memorised the text. The control changes the text
as little, and no number: names of people, a few words with plain synonyms, and a sentence in front where a
question offers nothing else.
"""

from __future__ import annotations

import random
import re

from numsft.errors import RunError
from numsft.evaluation.remap.words import number_words

_NAMES = {
    "female": (
        "Anna Amy Alice Beth Carla Diana Emily Emma Grace Jane Janet Jenny Jessica Julia Kate Katie Kelly "
        "Laura Linda Lisa Lucy Maria Mary Megan Nancy Olivia Rachel Sally Sarah Sandra Sara Sophia "
        "Susan Tina Wendy"
    ).split(),
    "male": (
        "Adam Alan Andrew Ben Bob Brian Carl Charles Daniel David Eric Frank Gary George Greg Henry Jack "
        "James Jason Jeff Jim Joe John Josh Kevin Mark Matt Michael Mike Paul Peter Robert Ryan Sam Steve "
        "Tim Toby Tom"
    ).split(),
}
_SYNONYMS = {
    "buys": "purchases",
    "bought": "purchased",
    "kids": "children",
    "children": "kids",
    "store": "shop",
    "shop": "store",
    "big": "large",
    "large": "big",
    "needs": "requires",
    "begins": "starts",
    "starts": "begins",
    "started": "began",
    "began": "started",
    "decides": "chooses",
    "decided": "chose",
    "wants": "wishes",
    "wanted": "wished",
    "every": "each",
    "gave": "handed",
    "gives": "hands",
    "money": "cash",
    "picked": "gathered",
    "picks": "gathers",
    "collected": "gathered",
    "collects": "gathers",
    "receives": "gets",
    "received": "got",
    "mom": "mother",
    "mother": "mom",
    "dad": "father",
    "father": "dad",
}
_BEFORE_TO = ("decides", "decided", "wants", "wanted")  # `wishes to buy`, but not `wishes a car`
_OPENINGS = (
    "Consider the following situation.",
    "Here is a short word problem.",
    "Read this carefully and work out the answer.",
    "Please solve the following problem.",
    "Think about this story.",
    "Work through the question below.",
    "The following is an exercise in arithmetic.",
    "Look at this situation.",
    "This is a word problem about numbers.",
    "Solve this exercise.",
)
_CLOSINGS = (
    "Give the answer as a number.",
    "State only the final number at the end.",
    "Explain how you get there.",
    "Work it out step by step.",
    "Show your reasoning.",
    "Take your time.",
    "Write down how you found it.",
    "Check your result before you answer.",
    "Answer in the end with a number.",
    "Be careful with the arithmetic.",
)


def control_rewrite(question: str, seed: str, avoid: frozenset[str] = frozenset()) -> str:
    """Returns `question` with other words and the same numbers, different from every text in `avoid`.

    Raises:
        RunError: If `avoid` leaves no rewrite, which takes dozens of variants of one question.
    """
    rng = random.Random(seed)
    for attempt in range(1000):
        text = _with_synonyms(_with_other_names(question, rng), rng)
        if attempt >= 20 or text == question:
            opening = rng.choice(_OPENINGS)
            text = f"{opening} {text}"
        if attempt >= 60:
            text = f"{text} {rng.choice(_CLOSINGS)}"
        if text != question and text not in avoid and _numbers(text) == _numbers(question):
            return text
    raise RunError(f"no further control rewrite after {len(avoid)} of them; ask for fewer variants.")


def _numbers(text: str) -> tuple[list[str], list[str]]:
    return re.findall(r"\d[\d.,]*", text), number_words(text)


def _with_other_names(question: str, rng: random.Random) -> str:
    present = set(re.findall(r"[A-Z][a-z]+", question))
    others: dict[str, str] = {}
    for names in _NAMES.values():
        free = [name for name in names if name not in present]
        for name in sorted(present & set(names)):
            others[name] = free.pop(rng.randrange(len(free)))
    if not others:
        return question
    return re.sub(rf"\b({'|'.join(others)})\b", lambda match: others[match[1]], question)


def _with_synonyms(question: str, rng: random.Random) -> str:
    chosen = {word for word in sorted(_SYNONYMS) if rng.random() < 0.7}
    return re.sub(
        r"\b[a-z]+\b", lambda m: _SYNONYMS[m[0]] if m[0] in chosen and _plain(m) else m[0], question
    )


def _plain(match: re.Match[str]) -> bool:
    """Whether the word stands by itself; `every other` must stay, since it means two."""
    following = match.string[match.end() :]
    before_to = following.startswith(" to ")
    if (match[0] == "needs" and before_to) or (match[0] in _BEFORE_TO and not before_to):
        return False
    return not re.match(r" (?:other|second|third|to be)\b|-|[’']", following)
