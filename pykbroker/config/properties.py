r"""The .properties format of Java: text to key-value pairs and back.

Responsible for the format alone (java.util.Properties.load and store). Key and value are separated by `=`, `:` or
blank, and comments begin with `#` or `!`. A backslash at the end of a line continues it. The escapes are \t \n \r \f
and \uXXXX. Not responsible for the meaning of keys.

Differences from Java: a file is read as UTF-8 where it is valid UTF-8, otherwise as Latin-1 (Java: always Latin-1 for a
byte stream). A malformed \u escape is a ConfigError with its line number. A single backslash at the very end is ignored
(Java: sometimes an empty key, depending on how the last line ends).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from pykbroker.config.kinds import ConfigError

_BLANK: Final = " \t\f"
_UNESCAPE: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}
_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.)", re.DOTALL)
_SURROGATES: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def parse(text: str) -> dict[str, str]:
    """Return all pairs, in the order in which their keys first appear. If a key is repeated, its last value counts, as
    in Java."""
    pairs: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        pairs[_unescape(key, number)] = _unescape(value, number)
    return pairs


def parse_bytes(data: bytes) -> dict[str, str]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return parse(text)


def format(pairs: Mapping[str, str], comment: str = "") -> str:
    """Return a file that `parse` and Java read back as the same pairs; pure ASCII."""
    lines = [f"#{_ascii(line)}" for line in re.split(r"\r\n|\r|\n", comment)] if comment else []
    lines += [f"{_escape(key, key=True)}={_escape(value, key=False)}" for key, value in pairs.items()]
    return "".join(line + "\n" for line in lines)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each logical line (a line joined with its continuations) and the number of its first line. Blank lines and
    comments are left out."""
    natural_lines = re.split(r"\r\n|\r|\n", text)
    joined = ""
    start = 0
    for number, natural in enumerate(natural_lines, start=1):
        line = natural.lstrip(_BLANK)
        if not joined:  # a new line, or a line that continues an empty text: Java treats both alike
            if not line or line[0] in "#!":
                continue  # a comment cannot be continued
            start = number
        backslashes = len(line) - len(line.rstrip("\\"))
        joined += line
        if backslashes % 2:
            joined = joined[:-1]
            if number < len(natural_lines):
                continue
        if joined:
            yield start, joined
        joined = ""


def _split(line: str) -> tuple[str, str]:
    """Return key and value, both still escaped."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text

    def one(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped == "u":
            raise ConfigError(f"Line {line} of the properties file: \\u must be followed by four hexadecimal digits")
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        return _UNESCAPE.get(escaped, escaped)

    plain = _ESCAPED.sub(one, text)
    # Java's chars are UTF-16, so two escapes may be the halves of one character.
    return _SURROGATES.sub(lambda match: match[0].encode("utf-16", "surrogatepass").decode("utf-16"), plain)


def _escape(text: str, *, key: bool) -> str:
    out = []
    for index, char in enumerate(text):
        if char in _ESCAPE:
            out.append(_ESCAPE[char])
        elif char == " " and (key or index == 0):
            out.append("\\ ")
        elif char in "=:#!":
            out.append("\\" + char)
        else:
            out.append(_ascii(char))
    return "".join(out)


def _ascii(text: str) -> str:
    out = []
    for char in text:
        if " " <= char <= "~":
            out.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass")
            out.extend(f"\\u{units[at] << 8 | units[at + 1]:04X}" for at in range(0, len(units), 2))
    return "".join(out)
