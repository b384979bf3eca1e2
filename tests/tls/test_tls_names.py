"""Subjects as Java writes them, and the results of the rules. compat_tests/tls compares thousands with Java itself."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.config.kinds import ConfigError
from pykbroker.tls.distinguished_names import MalformedName, name_of, subject_of
from pykbroker.tls.principal_mapping import PrincipalMapper
from testkit.certificates import authority, now

SHORT = {NameOID.COMMON_NAME: "CN", NameOID.ORGANIZATION_NAME: "O", NameOID.DOMAIN_COMPONENT: "DC"}
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


def unescaped(value: str) -> str:
    """Undo the escapes of RFC 2253."""
    out, position = [], 0
    while position < len(value):
        if value.startswith("\\00", position):
            out.append("\0")
            position += 3
        else:
            position += value[position] == "\\"
            out.append(value[position])
            position += 1
    return "".join(out)


@given(st.lists(st.tuples(st.sampled_from(list(SHORT)), texts), max_size=5))
def test_a_name_says_every_attribute_in_reverse(attributes: list[tuple[x509.ObjectIdentifier, str]]) -> None:
    name = x509.Name([x509.NameAttribute(oid, value, _validate=False) for oid, value in attributes])
    text = name_of(name.public_bytes())
    parts, start, position = [], 0, 0
    while position <= len(text) and text:
        if position == len(text) or text[position] == ",":
            parts.append(text[start:position])
            start = position + 1
        elif text[position] == "\\":
            position += 1
        position += 1
    found = [(part.partition("=")[0], unescaped(part.partition("=")[2])) for part in parts]
    assert found == [(SHORT[oid], value) for oid, value in reversed(attributes)]


def test_the_subject_is_found_in_a_certificate() -> None:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
            x509.NameAttribute(NameOID.EMAIL_ADDRESS, "alice@example.com"),
            x509.NameAttribute(NameOID.COMMON_NAME, " Alice, the first "),
        ]
    )
    certificate = authority().issue(subject, now=now(), days=1).certificate.public_bytes(Encoding.DER)
    assert subject_of(certificate) == (
        "CN=\\ Alice\\, the first\\ ,1.2.840.113549.1.9.1=#1611616c696365406578616d706c652e636f6d,C=DE"
    )
    for end in range(0, len(certificate) - 1, 7):
        with pytest.raises(MalformedName):
            subject_of(certificate[:end])


@given(st.binary(max_size=100))
def test_bytes_that_are_no_certificate_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedName):
        subject_of(data)


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", "CN=Alice,OU=Users"),
        ("RULE:^CN=(.*?),.*$/$1/", "Alice"),
        ("RULE:^CN=(.*?),.*$/$1/U", "ALICE"),
        ("RULE:^OU=(.*)$/$1/, RULE:^CN=(.*?),OU=(.*)$/$2.$1/L", "users.alice"),
        ("RULE:^CN=Bob.*$/bob/", None),
        ("", None),
        ("RULE:.*/x/", "xx"),
        ("RULE:(.*?)/-/", "-C-N-=-A-l-i-c-e-,-O-U-=-U-s-e-r-s-"),
    ],
)
def test_the_first_rule_that_takes_a_subject_names_it(rules: str, name: str | None) -> None:
    assert PrincipalMapper(rules).name_of("CN=Alice,OU=Users") == name


@pytest.mark.parametrize(
    "rules",
    ["default", "RULE:a", "RULE:a/b", "RULE:a/b/X", "RULE:[/b/", "RULE:a/$1/", "RULE:[a&&b]/x/", "RULE:(a)/$x/", "x"],
)
def test_rules_that_are_none_stop_the_start(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapper(rules)
