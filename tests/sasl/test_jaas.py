"""JAAS lines and files, as Java's StreamTokenizer and Apache Kafka's JaasConfig read them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.sasl.jaas import JaasError, parse_file, parse_line


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("a.B required;", {}),
        ('a.B required username="alice" password="s e=c;r\'et";', {"username": "alice", "password": "s e=c;r'et"}),
        ("a.B  REQUIRED\n user_x=y\tz='q\"q' ;", {"user_x": "y", "z": 'q"q'}),
        ('a.B sufficient a="\\"\\\\\\n\\101\\7\\/" ;', {"a": '"\\\nA\x07/'}),
        ("a.B optional a=b // comment\n c=d /* more ; */ e=f;", {"a": "b", "c": "d", "e": "f"}),
        ("a.B requisite a=b-c_d.e$f c=x1;", {"a": "b-c_d.e$f", "c": "x1"}),
        ('a.B required a="not closed\n;', {"a": "not closed"}),
        ("a.B required a=b a=c;", {"a": "c"}),
        ('\'a.B\' "required" "a b"=c;', {"a b": "c"}),
        ("a.B required a=é\u4e2d;", {"a": "é\u4e2d"}),
    ],
)
def test_a_line_that_apache_kafka_takes(line: str, options: dict[str, str]) -> None:
    entry = parse_line(line)
    assert entry.module == "a.B"
    assert entry.options == options


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "Login module not specified in JAAS config"),
        ("// nothing", "Login module not specified in JAAS config"),
        ("secret", "Login module control flag not specified in JAAS config"),
        ("secret;", "Login module control flag is not available in the JAAS config"),
        ("a.B secret;", "Invalid login module control flag in JAAS config"),
        ("a.B required", "JAAS config entry not terminated by semi-colon"),
        ("a.B required a=b", "JAAS config entry not terminated by semi-colon"),
        ("a.B required password secret;", "Value not specified for key 'password' in JAAS config"),
        ("a.B required password=;", "Value not specified for key 'password' in JAAS config"),
        ("a.B required password=5secret;", "Value not specified for key 'password' in JAAS config"),
        ("a.B required a=b secret;", "Value not specified for key number 2 in JAAS config"),
        ("a.B required user_secret;", "Value not specified for key number 1 in JAAS config"),
        ("a.B required a=b; c.D required;", "JAAS config property contains 2 login modules, should be 1 module"),
    ],
)
def test_a_line_that_it_does_not_take_and_no_secret_in_the_reason(line: str, said: str) -> None:
    with pytest.raises(JaasError) as refused:
        parse_line(line)
    assert str(refused.value) == said


def test_a_file_has_contexts() -> None:
    text = """
    // of the broker
    KafkaServer {
        org.apache.kafka.common.security.plain.PlainLoginModule required
            username="admin" password="admin-secret" user_admin="admin-secret";
        org.apache.kafka.common.security.scram.ScramLoginModule required;
    };
    sasl_plaintext.KafkaServer { a.B required; };
    """
    contexts = parse_file(text)
    assert [entry.module.rpartition(".")[2] for entry in contexts["KafkaServer"]] == [
        "PlainLoginModule",
        "ScramLoginModule",
    ]
    assert contexts["KafkaServer"][0].options["user_admin"] == "admin-secret"
    assert "secret" not in repr(contexts)
    assert contexts["sasl_plaintext.KafkaServer"][0].module == "a.B"


@pytest.mark.parametrize(
    "text", ["secret", "secret {", "secret { a.B required; }", "a { }; a { };", "a { a.B required }; ", "{ };"]
)
def test_a_file_that_is_none(text: str) -> None:
    with pytest.raises(JaasError) as refused:
        parse_file(text)
    assert "secret" not in str(refused.value)


@given(st.text(alphabet="aZ.B_ \"'\\/*;={}0-9\n\r\u00e9"))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_line, parse_file):
        with contextlib.suppress(JaasError):
            parse(text)
