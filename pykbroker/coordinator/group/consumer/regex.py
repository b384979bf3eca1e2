"""Topic names by regular expression (KIP-848): RE2's syntax, whole names, in time linear in their length.

Responsible for what a pattern is and which names it matches. Not responsible for when groups resolve their patterns,
nor for who may see which topic.

Apache Kafka uses RE2/J; here it is RE2 itself (google-re2), imported when the first pattern arrives: a broker without
such subscriptions does not pay for it. Both come from one syntax (compat_tests/consumer_groups has a comparison). What
differs:

* `\\C` (one byte) and two groups of one name are errors in RE2/J, and so they are here; a backslash before a letter
  that is not ASCII means that letter;
* RE2 counts nested repetitions together: `(a{500}){3}` is over its limit of 1,000, and RE2/J looks at each alone;
* a pattern that needs over 1 MiB (`\\pL{100}`), has over 16,384 characters or 100 Unicode classes is refused, and
  RE2/J has no such limits.

Without the package every pattern is refused as invalid, and the message says why.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pykbroker_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import re2

#: How many names are compared in one go: a tenth of a millisecond, and some ten with a pattern made to be slow.
SLICE: Final = 100
#: A pattern's memory; what fits is compiled in some 20 milliseconds, and in 100 if it was made to be slow. Clients
#: choose patterns: the ones that are kept must not add up to the broker's memory.
PATTERN_BYTES: Final = 2**20
KEPT_PATTERNS: Final = 64
#: Characters of a pattern. A character that stands for itself is at least one instruction of 16 bytes, and RE2 gives a
#: program a quarter of the memory, so that a longer list of names does not fit. Other longer patterns only take time.
LONGEST_PATTERN: Final = PATTERN_BYTES // 64
#: Classes such as `\pL` in one pattern. RE2 walks over hundreds of ranges for each, before it knows what they need.
MOST_UNICODE_CLASSES: Final = 100

#: What RE2 says, in the words of RE2/J, which clients see. `)` is a surprise to RE2/J, too.
_WORDS: Final = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "unexpected )": "regexp/syntax: internal error",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "trailing \\": "trailing backslash at end of expression",
    # RE2/J has no such limit.
    "pattern too large - compile failed": "pattern too large",
}


class Pattern:
    """A valid pattern."""

    __slots__ = ("_match", "text")

    def __init__(self, text: str, compiled: re2._Regexp) -> None:
        self.text = text
        self._match = compiled.fullmatch

    def matches(self, name: str) -> bool:
        return self._match(name.encode()) is not None  # bytes: of text, positions would be counted too


@lru_cache(maxsize=KEPT_PATTERNS)
def compile_pattern(text: str) -> Pattern:
    """KafkaError(INVALID_REGULAR_EXPRESSION): it is none."""
    try:
        import re2
    except ImportError as error:
        raise _invalid(text, f"this broker has no google-re2 ({error})") from error
    options = re2.Options()
    options.never_capture = True  # only whether, never where
    options.log_errors = False
    options.max_mem = PATTERN_BYTES
    try:
        return Pattern(text, re2.compile(_as_re2(text), options))
    except re2.error as error:
        said = error.args[0].decode(errors="replace")
        reason, _, where = said.partition(": ")
        if where.startswith("(?<"):
            reason = "invalid named capture group"
        raise _invalid(text, _WORDS.get(reason, reason)) from error


def _as_re2(text: str) -> str:
    """The pattern as RE2 understands it like RE2/J, in one pass.

    No position is looked at twice, because a client chooses the text: what RE2 refuses in any case, such as a class
    without an end, is passed on as it is."""
    if len(text) > LONGEST_PATTERN or text.count("\\p") + text.count("\\P") > MOST_UNICODE_CLASSES:
        raise _invalid(text, "pattern too large")
    names: set[str] = set()
    parts: list[str] = []
    position = copied = 0
    last_end = text.rfind(":]")
    while position < len(text):
        match text[position]:
            case "\\":
                if text.startswith("Q", position + 1):
                    end = text.find("\\E", position + 2)
                    position = len(text) if end < 0 else end + 2
                    continue
                letter = text[position + 1 : position + 2]
                if letter == "C":
                    raise _invalid(text, "invalid escape sequence")
                if not letter.isascii():
                    parts.append(text[copied:position])
                    copied = position + 1
                position += 2
            case "[":
                begin = position
                position = _end_of_class(text, begin, last_end)
                if last_end < begin and text.find("[:", begin + 1, position) > 0:
                    # RE2 would look for the end of each `[:` in the whole text, and then take it as it is written.
                    parts.append(text[copied : begin + 1] + text[begin + 1 : position].replace("[:", "[\\:"))
                    copied = position
            case "(" if text.startswith(("?<", "?P<"), position + 1):
                begin = text.index("<", position) + 1
                end = text.find(">", begin)
                if end < 0:
                    break
                name = text[begin:end]
                if name in names and name.replace("_", "a").isalnum():
                    raise _invalid(text, "duplicate capture group name")
                names.add(name)
                position = end + 1
            case _:
                position += 1
    return "".join((*parts, text[copied:]))


def _end_of_class(text: str, position: int, last_end: int) -> int:
    """The position after a class such as `[a-z]` that begins at `position`; the text's end if the class has none.

    last_end: the last `:]` of the text, so that no `[:` looks in vain for the end of its name."""
    position += 1
    if text.startswith("^", position):
        position += 1
    if text.startswith("]", position):
        position += 1  # It stands for itself.
    while position < len(text):
        match text[position]:
            case "]":
                return position + 1
            case "\\":
                position += 2
            case "[" if position + 2 <= last_end and text.startswith(":", position + 1):
                position = text.index(":]", position + 2) + 2
            case _:
                position += 1
    return len(text)


def _invalid(text: str, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{text}` is not a valid regular expression: {reason}.",
    )


def resolve(patterns: Iterable[str], topic_names: Sequence[str]) -> dict[str, frozenset[str]]:
    """All at once. Of 10,000 names each pattern takes some 10 ms: a loop that has others to serve takes slices."""
    slices = resolve_in_slices(patterns, topic_names)
    while True:
        try:
            next(slices)
        except StopIteration as end:
            found: dict[str, frozenset[str]] = end.value
            return found


def resolve_in_slices(
    patterns: Iterable[str], topic_names: Sequence[str]
) -> Generator[None, None, dict[str, frozenset[str]]]:
    """As `resolve`, and comes up for air after every SLICE names of a pattern. A pattern that is not valid matches
    nothing: it came from a log that another broker wrote."""
    resolved: dict[str, frozenset[str]] = {}
    for text in dict.fromkeys(patterns):
        found: list[str] = []
        try:
            matches = compile_pattern(text).matches
        except KafkaError:
            resolved[text] = frozenset()
            continue
        for start in range(0, len(topic_names), SLICE):
            found += filter(matches, topic_names[start : start + SLICE])
            yield
        resolved[text] = frozenset(found)
    return resolved
