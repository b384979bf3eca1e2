"""Decodes bytes of UTF-8 to text as Java's String does."""

from __future__ import annotations

import codecs

_SURROGATE_LEAD = 0xED


def _replace(error: UnicodeError) -> tuple[str, int]:
    """Return one U+FFFD for bytes that are not UTF-8. For the bytes of a surrogate, Python would return one for each
    byte; Java returns one for all."""
    assert isinstance(error, UnicodeDecodeError)
    data, start = error.object, error.start
    if data[start] == _SURROGATE_LEAD and 0xA0 <= (data[start + 1 : start + 2] or b"\0")[0] <= 0xBF:
        third = (data[start + 2 : start + 3] or b"\0")[0]
        return "\ufffd", start + (3 if 0x80 <= third <= 0xBF else 2)
    return "\ufffd", error.end


codecs.register_error("pykbroker.java", _replace)


def java_text(data: bytes | memoryview) -> str:
    return str(data, "utf-8", "pykbroker.java")
