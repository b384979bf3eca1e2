"""The patterns that make a sentence hard to read, by the table of words of the project: each rule finds one pattern.

A program finds the beginning of a sentence, its length and its words. Only a reader can decide if it is understood at
first reading (CONTRIBUTING.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.prose.texts import Kind, Prose

MOST_WORDS: Final = 35
_CODE: Final = re.compile(r"``[^`]*``|`[^`]*`|\[([^\]]*)\]\([^)]*\)")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])[)\"'*]*\s+(?=[A-Z`\"'(*\[0-9])")
_ABBREVIATION: Final = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|No|resp)\.$")
#: A clause in the place of a noun: "What waits", "Whether it is so", "One that", "Of a leader".
_HEADLESS: Final = re.compile(
    r"^(?:What(?!ever)|Who|Whose|Whom|Whether|Which|How|Why|Of|Nobody|Everybody|Whoever"
    r"|(?:Those|Ones?|Everything|Nothing|All) (?:that|who|whose|of which)|(?:That|Those|Ones) of"
    r"|(?:By|For|In|With|At|To|From|On|After) (?:which|whom|what))\b"
)
#: A value and a colon in place of the conjunction: "None" and then "…".
_COLON_FOR_IF: Final = re.compile(r"\b(None|True|False|Else|Otherwise|empty|0|-1|[A-Z_]{4,}):\s", re.MULTILINE)
_WARNED: Final = re.compile(
    r"\b(behind|any more|meanwhile|for ever|beside|nobody|everybody|whoever|hears?|heard|tells?|told)\b", re.IGNORECASE
)
#: Words with which a question begins stand in tables of contents too.
_QUESTION_ENDS: Final = ("?", '?"', "?)", "?*")


@dataclass(frozen=True, slots=True)
class Finding:
    """A pattern at a place."""

    rule: str
    prose: Prose
    sentence: str

    def __str__(self) -> str:
        return f"{self.prose.path}:{self.prose.line}: {self.rule}: {self.sentence[:160]}"


#: Rules whose findings fail the check; the others are for the eye.
FAILING: Final = ("headless", "long", "colon")


def sentences(text: str) -> list[str]:
    found: list[str] = []
    for part in _SENTENCE_END.split(text):
        if found and _ABBREVIATION.search(found[-1]):
            found[-1] += " " + part
        else:
            found.append(part)
    return found


def words(sentence: str) -> int:
    """Code and links count as one word each."""
    plain = _CODE.sub(lambda match: match[1] or "code", sentence)
    return sum(any(letter.isalnum() for letter in word) for word in plain.split())


def findings(prose: Prose) -> Iterator[Finding]:
    """Yield all findings of the rules in one paragraph."""
    for sentence in sentences(prose.text):
        if _HEADLESS.match(sentence) and not sentence.endswith(_QUESTION_ENDS):
            yield Finding("headless", prose, sentence)
        if words(sentence) > MOST_WORDS:
            yield Finding("long", prose, sentence)
        if prose.kind in (Kind.DOCSTRING, Kind.COMMENT) and _COLON_FOR_IF.search(_CODE.sub("code", sentence)):
            yield Finding("colon", prose, sentence)
        for word in _WARNED.findall(sentence):
            yield Finding(f"word {word.lower()}", prose, sentence)
