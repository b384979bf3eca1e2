"""The encodings of keys and values as text: unchanged, in hexadecimal, or in base64. Pure."""

from __future__ import annotations

import base64
import binascii
from typing import Final, Literal, TypeAlias

Encoding: TypeAlias = Literal["text", "hex", "base64"]
ENCODINGS: Final[tuple[Encoding, ...]] = ("text", "hex", "base64")


def encoded(data: bytes, encoding: Encoding) -> bytes:
    """Return the bytes to print; `text` changes nothing."""
    if encoding == "hex":
        return binascii.hexlify(data)
    return base64.b64encode(data) if encoding == "base64" else data


def decoded(text: bytes, encoding: Encoding) -> bytes:
    """Return the bytes from which `encoded` makes the text. Raises ValueError."""
    if encoding == "text":
        return text
    try:
        return binascii.unhexlify(text) if encoding == "hex" else base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not {encoding}: {str(error).lower()}") from None
