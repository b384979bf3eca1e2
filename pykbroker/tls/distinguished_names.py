"""The subject of a certificate as text, exactly as Java's `X500Principal.getName()` writes it (RFC 2253).

It reads the DER itself, because OpenSSL has names for attributes for which Java has none, and ACLs compare the whole
text. Pure. Not responsible for the use of the text (principal_mapping.py).

* Relative names are in reverse order and joined with commas; several attributes of one relative name are joined with a
  plus.
* CN, C, L, ST, O, OU, STREET, DC and UID have names. Any other attribute is written as its OID, and `#` with the DER of
  the value.
* Java reads the bytes of every kind of string as UTF-8.
"""

from __future__ import annotations

from typing import Final

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_SEQUENCE, _SET, _OID, _VERSION = 0x30, 0x31, 0x06, 0xA0
#: UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString; Java does not write a UniversalString as
#: text
_STRINGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
_ESCAPED: Final = frozenset(',=+<>#;"\\')


class MalformedName(ValueError):
    """The bytes are not a certificate, or its subject is not a valid name."""


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate (DER). Raises MalformedName for other bytes."""
    to_be_signed, _ = _enter(certificate, 0, len(certificate), _SEQUENCE)
    position, end = _enter(certificate, *to_be_signed, _SEQUENCE)[0]
    if position < end and certificate[position] == _VERSION:
        position = _value(certificate, position, end)[2]
    # serial number, signature algorithm, issuer, validity
    for _ in range(4):
        position = _value(certificate, position, end)[2]
    return name_of(certificate[position : _value(certificate, position, end)[2]])


def name_of(name: bytes) -> str:
    """Return a Name (DER) as text."""
    (position, end), _ = _enter(name, 0, len(name), _SEQUENCE)
    relative_names = []
    while position < end:
        (at, stop), position = _enter(name, position, end, _SET)
        attributes = []
        while at < stop:
            (first, last), at = _enter(name, at, stop, _SEQUENCE)
            attributes.append(_attribute(name, first, last))
        relative_names.append("+".join(attributes))
    return ",".join(reversed(relative_names))


def _attribute(data: bytes, position: int, end: int) -> str:
    (first, last), value_at = _enter(data, position, end, _OID)
    oid = _dotted(data[first:last])
    start, stop, after = _value(data, value_at, end)
    keyword = _KEYWORDS.get(oid)
    if keyword is None or data[value_at] not in _STRINGS:
        return f"{keyword or oid}=#{data[value_at:after].hex()}"
    return f"{keyword}={_escaped(data[start:stop].decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    lead = len(text) - len(text.lstrip(" \r"))
    trail = len(text.rstrip(" \r"))
    out = []
    for position, char in enumerate(text):
        if char == "\0":
            # Java writes `\00` before it looks for spaces and returns at both ends. So a NUL ends such a run and gets
            # no second backslash.
            out.append("\\00")
        elif char in _ESCAPED or position < lead or position >= trail:
            out.append("\\" + char)
        else:
            out.append(char)
    return "".join(out)


def _dotted(body: bytes) -> str:
    if not body or body[-1] & 0x80:
        raise MalformedName("an object identifier ends too early")
    numbers, number = [], 0
    for byte in body:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _enter(data: bytes, position: int, end: int, tag: int) -> tuple[tuple[int, int], int]:
    """Return the bounds of the contents of the value at `position`, which must have this tag, and the end of the
    value."""
    start, stop, after = _value(data, position, end)
    if data[position] != tag:
        raise MalformedName(f"tag {data[position]:#x} where {tag:#x} is expected")
    return (start, stop), after


def _value(data: bytes, position: int, end: int) -> tuple[int, int, int]:
    """Return the positions at which the contents of the value at `position` begin and end, and at which the next value
    begins."""
    if position + 2 > end:
        raise MalformedName("it ends too early")
    length, start = data[position + 1], position + 2
    if length & 0x80:
        count = length & 0x7F
        if not 1 <= count <= 4 or start + count > end:
            raise MalformedName("a length that cannot be")
        length = int.from_bytes(data[start : start + count])
        start += count
    if start + length > end:
        raise MalformedName("it ends too early")
    return start, start + length, start + length
