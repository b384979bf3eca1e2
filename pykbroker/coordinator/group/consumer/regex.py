"""Topic names by regular expression (KIP-848): RE2's syntax, whole names, in time linear in their length.

Responsible for compiling patterns and for the names that they match. Not responsible for when groups resolve their
patterns, nor for which topics a client may see.

Apache Kafka uses RE2/J; here it is RE2 itself (google-re2), imported when the first pattern arrives, so that a broker
without such subscriptions does not pay for it. Both have the same syntax (compat_tests/consumer_groups has a
comparison). There are these differences:

* `\\C` (one byte) and two groups of one name are errors in RE2/J, and so they are here; a backslash before a letter
  that is not ASCII means that letter;
* RE2 multiplies nested repetitions: `(a{500}){3}` is over its limit of 1,000, and RE2/J checks each repetition alone;
* a pattern that needs over 1 MiB (`\\pL{100}`), has over 16,384 characters or 100 Unicode classes is refused, and
  RE2/J has no such limits.

Without the package each pattern is refused as invalid, and the message gives the reason.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pykbroker_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import re2

#: The number of names that are compared without a pause. They take a tenth of a millisecond, or some ten milliseconds
#: with a pattern that was made to be slow.
SLICE: Final = 100
#: The most memory of a pattern. A pattern that fits compiles in some 20 milliseconds, or in 100 if it was made to be
#: slow. Clients choose patterns, so the kept patterns must not fill the broker's memory.
PATTERN_BYTES: Final = 2**20
KEPT_PATTERNS: Final = 64
#: Most characters of a pattern. A literal character is at least one instruction of 16 bytes, and RE2 gives a program a
#: quarter of the memory, so a longer list of names does not fit. Longer patterns that would fit only take time.
LONGEST_PATTERN: Final = PATTERN_BYTES // 64
#: Most classes such as `\pL` in one pattern. RE2 walks over hundreds of ranges for each, before it checks their memory.
MOST_UNICODE_CLASSES: Final = 100

#: The messages of RE2, and those of RE2/J, which clients see. For an unexpected `)` RE2/J itself reports an internal
#: error.
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
        return self._match(name.encode()) is not None  # as bytes, because with text RE2 also counts positions


@lru_cache(maxsize=KEPT_PATTERNS)
def compile_pattern(text: str) -> Pattern:
    """Raises KafkaError with INVALID_REGULAR_EXPRESSION if the text is no valid pattern."""
    try:
        import re2
    except ImportError as error:
        raise _invalid(text, f"this broker has no google-re2 ({error})") from error
    options = re2.Options()
    options.never_capture = True  # only a match is asked for, and not its place
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
    """Return a pattern that means in RE2 the same as `text` in RE2/J. It is made in one pass.

    No position is looked at twice, because a client chooses the text. Text that RE2 refuses in any case, such as a
    class without an end, is passed on as it is.
    """
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
                    # RE2 would search the whole text for the end of each `[:`, and then take it literally.
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
    """Return the position after a class such as `[a-z]` that begins at `position`, or the text's end if the class has
    none.

    `last_end` is the last `:]` of the text. After it no search for the end of a `[:` is started, because it would
    fail."""
    position += 1
    if text.startswith("^", position):
        position += 1
    if text.startswith("]", position):
        position += 1  # a literal `]`
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
    """Resolve all patterns at once. With 10,000 names each pattern takes some 10 ms, so the event loop uses
    `resolve_in_slices`."""
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
    """Like `resolve`, but yields after each SLICE names of a pattern. An invalid pattern matches nothing. Only a log
    that another broker wrote can have one."""
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
