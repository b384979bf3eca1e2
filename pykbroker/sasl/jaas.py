"""Parses JAAS texts into entries, for `sasl.jaas.config` and for the file of `java.security.auth.login.config`.

Words, quotes and comments are those of Java's StreamTokenizer as Apache Kafka's JaasConfig sets it up, so that the same
line has the same meaning. No class is ever loaded: the name of a login module is only compared.

Invariant: because the text contains passwords, an error contains no word of it except the names that this module lists
(`_TELLABLE`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_FLAGS: Final = frozenset({"REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"})
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
#: Names of options that are certainly not a password.
_TELLABLE: Final = frozenset({"username", "password", "serviceName"})


class JaasError(ValueError):
    """The text is not a valid JAAS configuration."""


@dataclass(slots=True, frozen=True, repr=False)
class JaasEntry:
    """One login module and its options. Its `repr` shows no option."""

    module: str
    flag: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return "JaasEntry([hidden])"


class _Token(NamedTuple):
    """`word`: the text of a word, or the text within quotes; None if the token is a single character or a number.
    `mark`: the kind of the token, or the single character itself."""

    word: str | None
    mark: str


def _is_word(char: str) -> bool:
    return (char.isascii() and (char.isalnum() or char in "-._$")) or char >= "\xa0"


def _tokens(text: str) -> Iterator[_Token]:
    position, end = 0, len(text)
    while position < end:
        char = text[position]
        if char <= " ":
            position += 1
        elif char == "/":
            position = _behind_comment(text, position)
        elif char in "\"'":
            word, position = _quoted(text, position)
            yield _Token(word, char)
        elif char.isascii() and (char.isdigit() or char in "-."):
            # Java's StreamTokenizer reads a number here, whose token has no text.
            begin = position
            position = _behind_number(text, position)
            yield _Token(None, "-" if text[begin:position] == "-" else "0")
        elif _is_word(char):
            begin = position
            while position < end and _is_word(text[position]):
                position += 1
            yield _Token(text[begin:position], "a")
        else:
            position += 1
            yield _Token(None, char)


def _behind_comment(text: str, position: int) -> int:
    """Return the position after a comment. A single slash also begins a comment."""
    if text.startswith("/*", position):
        closed = text.find("*/", position + 2)
        return len(text) if closed < 0 else closed + 2
    while position < len(text) and text[position] not in "\r\n":
        position += 1
    return position


def _behind_number(text: str, position: int) -> int:
    if text[position] == "-":
        position += 1
        if position == len(text) or not (text[position] == "." or text[position] in "0123456789"):
            return position
    points = 0
    while position < len(text):
        if text[position] == "." and not points:
            points = 1
        elif text[position] not in "0123456789":
            break
        position += 1
    return position


def _quoted(text: str, position: int) -> tuple[str, int]:
    """Read up to the closing quote, or to the end of the line if there is none, as Java does. Return the text and the
    position after it."""
    quote, out = text[position], ""
    position += 1
    while position < len(text) and text[position] not in f"{quote}\r\n":
        char = text[position]
        position += 1
        if char != "\\" or position == len(text):
            out += char
            continue
        char = text[position]
        position += 1
        if char in "01234567":
            digits = char
            most = 3 if char <= "3" else 2
            while len(digits) < most and position < len(text) and text[position] in "01234567":
                digits += text[position]
                position += 1
            out += chr(int(digits, 8))
        else:
            out += _ESCAPES.get(char, char)
    if position < len(text) and text[position] == quote:
        position += 1
    return out, position


def _entry(module: str | None, tokens: Iterator[_Token]) -> JaasEntry:
    flag = next(tokens, None)
    if flag is None:
        raise JaasError("Login module control flag not specified in JAAS config")
    if flag.word is None:
        raise JaasError("Login module control flag is not available in the JAAS config")
    if flag.word.upper() not in _FLAGS:
        raise JaasError("Invalid login module control flag in JAAS config")
    options: dict[str, str] = {}
    for token in tokens:
        if token.mark == ";" and token.word is None:
            return JaasEntry(module or "", flag.word.upper(), options)
        equals, value = next(tokens, None), None
        if equals is not None and equals.word is None and equals.mark == "=":
            value = next(tokens, None)
        if value is None or value.word is None:
            which = f"'{token.word}'" if token.word in _TELLABLE else f"number {len(options) + 1}"
            raise JaasError(f"Value not specified for key {which} in JAAS config")
        # If the key has no text, Java uses the word "null" as the key; no module uses such an option.
        options[token.word or ""] = value.word
    raise JaasError("JAAS config entry not terminated by semi-colon")


def parse_line(text: str) -> JaasEntry:
    """Return the only entry of `sasl.jaas.config`. Raises JaasError."""
    tokens = _tokens(text)
    entries = [_entry(token.word, tokens) for token in tokens]
    if not entries:
        raise JaasError("Login module not specified in JAAS config")
    if len(entries) != 1:
        raise JaasError(f"JAAS config property contains {len(entries)} login modules, should be 1 module")
    return entries[0]


def parse_file(text: str) -> dict[str, tuple[JaasEntry, ...]]:
    """Return context name -> its entries, for a JAAS file with contexts such as `KafkaServer { module flag
    option=value; };`. Raises JaasError."""
    contexts: dict[str, tuple[JaasEntry, ...]] = {}
    tokens = _tokens(text)
    for name in tokens:
        if name.word is None or not _is_mark(next(tokens, None), "{"):
            raise JaasError("a JAAS file has contexts of the form <name> { <login module> <flag> <options>; };")
        entries: list[JaasEntry] = []
        for token in tokens:
            if _is_mark(token, "}"):
                break
            entries.append(_entry(token.word, tokens))
        else:
            raise JaasError("a context of a JAAS file is not closed")
        if not _is_mark(next(tokens, None), ";"):
            raise JaasError("a context of a JAAS file is not terminated by semi-colon")
        if name.word in contexts:
            raise JaasError("a JAAS file has two contexts of one name")
        contexts[name.word] = tuple(entries)
    return contexts


def _is_mark(token: _Token | None, mark: str) -> bool:
    return token is not None and token.word is None and token.mark == mark
