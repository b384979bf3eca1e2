"""Backslash escapes in format strings and delimiters, as kcat reads them. Pure.

\\n \\r \\t mean the same as in C, \\xNN is a byte by two hexadecimal digits, \\NNN a byte by its decimal number. A
backslash before any other character stands for that character; a backslash at the end stands for itself.
"""

from __future__ import annotations

import re
from typing import Final

_ESCAPE: Final = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|([0-9]{1,3})|(.)|$)", re.DOTALL)
_NAMED: Final = {"n": b"\n", "r": b"\r", "t": b"\t"}


def unescaped(text: str) -> bytes:
    """Return the bytes that a format or a delimiter stands for. Raises ValueError for a byte above 255."""
    found = bytearray()
    end = 0
    for escape in _ESCAPE.finditer(text):
        found += as_bytes(text[end : escape.start()])
        end = escape.end()
        digits, number, letter = escape.groups()
        if digits is not None:
            found.append(int(digits, 16))
        elif number is not None:
            if int(number) > 255:
                raise ValueError(f"\\{number} is no byte: the greatest is \\255")
            found.append(int(number))
        elif letter is not None:
            found += _NAMED.get(letter) or as_bytes(letter)
        else:
            found += b"\\"
    return bytes(found + as_bytes(text[end:]))


def as_bytes(text: str) -> bytes:
    """Return a word of a command line as the bytes that were typed."""
    return text.encode("utf-8", "surrogateescape")
