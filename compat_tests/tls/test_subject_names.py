"""Names of subjects as text, judged by Java's X500Principal."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

from pykbroker.tls.distinguished_names import name_of
from testkit import needs

PROGRAM = Path(__file__).with_name("SubjectNames.java")
#: attributes that both Java and OpenSSL name, that only one of them names, and that neither of them names
OIDS = (
    *("2.5.4.3", "2.5.4.6", "2.5.4.7", "2.5.4.8", "2.5.4.9", "2.5.4.10", "2.5.4.11", "2.5.4.5", "2.5.4.4", "2.5.4.12"),
    *("2.5.4.42", "2.5.4.43", "2.5.4.44", "2.5.4.46", "2.5.4.13", "2.5.4.17", "2.5.4.97", "2.5.4.16384"),
    *("1.2.840.113549.1.9.1", "0.9.2342.19200300.100.1.1", "0.9.2342.19200300.100.1.25", "1.3.6.1.4.1.42.2.11.2.1"),
    *("2.999.1", "1.3.9"),
)
#: UTF8String, PrintableString, T61String, IA5String, GeneralString, UniversalString, BMPString, NumericString, INTEGER
TAGS = (0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E, 0x12, 0x02)
TEXTS = (
    *("alice", "", " ", "  lead", "trail  ", " both ", "a  b", ",", "+", "=", "<", ">", "#", ";", '"', "\\", "a,b+c=d"),
    *("#lead", "in#side", "a\rb", "\r", "\n", "\t", "\0", "a\0b", " \0 ", "é", "日本", "\U0001f600", "O'Neil", "a\\,b"),
    *("CN=x,O=y", "/", "*", "@", "?", "!", "_", "&", "%", "\x7f", "\u2028", "ß", "İ"),
)


def tlv(tag: int, body: bytes) -> bytes:
    length = len(body)
    head = bytes([length]) if length < 128 else bytes([0x82]) + length.to_bytes(2)
    return bytes([tag]) + head + body


def oid(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    body = b""
    for number in (first * 40 + second, *rest):
        digits = [number & 0x7F]
        while number := number >> 7:
            digits.append(number & 0x7F | 0x80)
        body += bytes(reversed(digits))
    return tlv(0x06, body)


def some_name(rng: random.Random) -> bytes:
    sets = []
    for _ in range(rng.randrange(5)):
        attributes = []
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            tag = rng.choice((*TAGS, 0x0C, 0x13))
            body = b"\x05" if tag == 0x02 else "".join(rng.choices(TEXTS, k=rng.choice((1, 1, 2)))).encode()
            attributes.append(tlv(0x30, oid(rng.choice(OIDS)) + tlv(tag, body)))
        sets.append(tlv(0x31, b"".join(attributes)))
    return tlv(0x30, b"".join(sets))


def test_names_are_written_as_java_writes_them() -> None:
    rng = random.Random(15)
    names = [some_name(rng) for _ in range(3000)]
    for text in TEXTS:
        for tag in TAGS:
            names.append(tlv(0x30, tlv(0x31, tlv(0x30, oid("2.5.4.3") + tlv(tag, text.encode())))))
    asked = "".join(f"{name.hex()}\n" for name in names)
    done = subprocess.run(
        [needs.java(), str(PROGRAM)], input=asked, capture_output=True, text=True, timeout=120, check=True
    )
    answers = done.stdout.split("\n")[:-1]
    assert len(answers) == len(names)
    compared = 0
    for name, answer in zip(names, answers, strict=True):
        if answer != "refused":
            compared += 1
            assert name_of(name) == bytes.fromhex(answer).decode(), name.hex()
    # Java refuses empty IA5 strings and similar values; nearly all names are compared.
    assert compared > len(names) * 0.9, compared
