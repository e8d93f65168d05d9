"""The numbers that the words of a question mean: `half` is 2, a `week` has 7 days.

They serve twice: a numeral with such a value is refused, since a literal might be the word; and a literal
that is no numeral and no step must be one of them.
"""

from __future__ import annotations

import re
from fractions import Fraction

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
CARDINALS = {word: value for value, word in enumerate(_ONES)} | {
    word: 10 * value for value, word in enumerate(_TENS, start=2)
}
_PARTS = {
    "third": 3,
    "fourth": 4,
    "fifth": 5,
    "sixth": 6,
    "seventh": 7,
    "eighth": 8,
    "ninth": 9,
    "tenth": 10,
    "twelfth": 12,
    "twentieth": 20,
}

# A pattern, and what it may mean. Explicit words name the number; units only suggest it.
_EXPLICIT: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"hal(?:f|ve|ves|ved|ving)|halfway", ("2", "1/2")),
    (r"twice|doubl\w*|both|twins?|duo|pairs?|couples?|second|dual|two-\w+|either|bi\w*weekly", ("2",)),
    (r"one of each|one each", ("2",)),
    (r"tripl\w*|thrice|trio|threefold", ("3",)),
    (r"quadrupl\w*|fourfold|quartet", ("4",)),
    (r"quarters?|quarterly", ("4", "1/4", "3/4", "3", "25", "0.25")),
    (r"quintupl\w*", ("5",)),
    (r"hundreds?", ("100",)),
    (r"thousands?", ("1000",)),
    (r"millions?", ("1000000",)),
    (r"(?:half|half-)?[- ]?dozens?", ("12",)),
    (r"half (?:a )?dozens?|half-dozens?", ("6",)),
    (r"dimes?", ("10", "1/10")),
    (r"nickels?", ("5", "1/20")),
    (r"penn(?:y|ies)", ("1/100",)),
    (r"decades?", ("10",)),
    (r"centur(?:y|ies)", ("100",)),
    (r"fortnights?", ("14", "2")),
    (r"score", ("20",)),
)
_UNITS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"weeks?|weekly|daily|days?", ("7",)),
    (r"weekdays?|work\s?days?|weekends?|work\s?weeks?", ("5", "2")),
    (r"years?|yearly|annual\w*|months?|monthly|inch(?:es)?|feet|foot|ft", ("12",)),
    (r"years?|yearly|annual\w*|weekly", ("52", "365")),
    (r"months?|monthly", ("30", "4")),
    (r"days?|hours?|hourly|daily", ("24",)),
    (r"hours?|minutes?|seconds?|hourly|mph|an hour", ("60", "3600", "1/60", "1440")),
    (r"yards?|feet|foot", ("3", "36")),
    (r"gallons?|quarts?|pints?|cups?", ("4", "16", "8", "2")),
    (r"pounds?|ounces?|lbs?|oz", ("16",)),
    (r"tons?|kilo\w*|kgs?|km|meters?|metres?|grams?|liters?|litres?|ml", ("1000", "2000", "100")),
    (r"miles?", ("5280",)),
    (r"spiders?|octop\w*", ("8",)),
    (r"insects?|ants?|bees?", ("6",)),
)
# What a thing has, or how often something happens. It explains a constant; a numeral of the same value is not
# refused for it, since each numeral must stand in exactly one step anyway.
_THINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"other|another|alternate|back|return\w*|round[- ]trips?|each way|two-way", ("2",)),
    (r"mondays?|tuesdays?|wednesdays?|thursdays?|fridays?|saturdays?|sundays?|school", ("5", "2")),
    (
        r"square|rectang\w*|sides?|perimeter|tables?|chairs?|cars?|dogs?|cats?|cows?|horses?|legs?|tires?",
        ("4",),
    ),
    (r"wheels?|bicycles?|bikes?|motorcycles?|chickens?|birds?|legs?|arms?|eyes?|shoes?|socks?", ("2",)),
    (r"triang\w*|tricycles?", ("3",)),
    (r"average|mean|middle|area|rectang\w*|perimeter", ("2",)),
)
_CENTS = re.compile(r"%|\bper ?cent|\$|\bcents?\b|\bdollars?\b|\bcm\b|\bcentimet", re.IGNORECASE)
# What explains a constant 1: a word for one, or a part of a whole (1 - 1/4). Any other 1 is often a slip of
# the data.
_ONE = re.compile(
    r"\b(?:one|once|single|himself|herself|itself|themselves|myself|another|extra|additional|first|last|half"
    r"|percent|a (?:third|quarter|fourth|fifth|sixth|eighth|tenth))\b|%|\d/\d",
    re.IGNORECASE,
)


def explicit_values(question: str) -> frozenset[Fraction]:
    """Returns every number that a word of `question` names: cardinals, `a third`, `twice`, ..."""
    found = set(_matches(_EXPLICIT, question))
    words = re.findall(r"[a-z]+", question.lower())
    for i, word in enumerate(words):
        singular = word.removesuffix("s")
        if word in CARDINALS:
            found.add(Fraction(CARDINALS[word]))
            following = CARDINALS.get(words[i + 1], 0) if i + 1 < len(words) else 0
            if word in _TENS and 1 <= following <= 9:
                found.add(Fraction(CARDINALS[word] + following))
        elif singular in _PARTS:
            whole = _PARTS[singular]
            # `three fifths` leaves two fifths
            found |= {Fraction(whole)} | {Fraction(part, whole) for part in range(1, whole)}
            found |= {Fraction(part) for part in (CARDINALS.get(words[i - 1], 1),) if i}
            found |= {Fraction(whole - CARDINALS.get(words[i - 1], 1)) for _ in (0,) if i}
    return frozenset(found)


def unit_values(question: str) -> frozenset[Fraction]:
    """Returns every number that a unit in `question` suggests: 7 of a week, 60 of an hour."""
    found = set(_matches(_UNITS, question))
    if _ONE.search(question):
        found.add(Fraction(1))
    if _CENTS.search(question):
        found |= {Fraction(100), Fraction(1, 100)}
    return frozenset(found)


def thing_values(question: str) -> frozenset[Fraction]:
    """Returns every number that a thing in `question` suggests: 4 sides of a square, 8 legs of a spider."""
    return frozenset(_matches(_THINGS, question))


def landmarks(question: str) -> frozenset[Fraction]:
    """Returns the bounds that no numeral may cross: the days of a week, the hours of a day, 100 %."""
    return frozenset(value for value in unit_values(question) if value in {7, 12, 24, 30, 52, 60, 100, 365})


def number_words(text: str) -> list[str]:
    """Returns the number words of `text` in order; a control rewrite must keep them."""
    words = [*CARDINALS, *(f"{part}s?" for part in _PARTS), "once", "single"]
    words += [pattern for table in (_EXPLICIT, _UNITS, _THINGS) for pattern, _ in table]
    return re.findall(rf"\b(?:{'|'.join(words)})\b", text.lower())


def _matches(table: tuple[tuple[str, tuple[str, ...]], ...], question: str) -> list[Fraction]:
    return [
        Fraction(value)
        for pattern, values in table
        if re.search(rf"\b(?:{pattern})\b", question, re.IGNORECASE)
        for value in values
    ]
