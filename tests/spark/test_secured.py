"""`[security]` of pipeline.toml: the words of each client, what is refused, and that secrets stay."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import config, permissions, secured, session
from pipeline.config import Config
from pipeline.errors import PipelineError
from pykbroker.tls.authority import Authority

PASSWORD = "hunter2-and-more"
#: Passes as a whole; tests take one thing away or add one.
LOGIN = {"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-512", "user": "pipeline", "password": PASSWORD}
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def ca_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("ca") / "authority.pem"
    path.write_bytes(Authority.create("tests", now=datetime.now(UTC), days=1).certificate_pem)
    return str(path)


def parsed(security: object, **kafka: str) -> Config:
    servers = {"bootstrap.servers": "one:9092,two:9092"}
    return config.parse(
        {"checkpoints": "c", "lake": {"path": "l"}, "kafka": {**servers, **kafka}, "security": security}
    )


def refused(security: object, **kafka: str) -> PipelineError:
    with pytest.raises(PipelineError) as raised:
        parsed(security, **kafka)
    assert PASSWORD not in str(raised.value)
    assert "\n" not in raised.value.message
    return raised.value


def test_each_client_is_told_the_same_in_its_own_words(ca_file: str) -> None:
    found = parsed({**LOGIN, "ca_file": ca_file})
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    assert found.kafka_options() == {
        "kafka.bootstrap.servers": "one:9092,two:9092",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{module} required username="pipeline" password="{PASSWORD}";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": ca_file,
    }
    assert secured.kafka_python(found.kafka) == {
        "bootstrap_servers": ["one:9092", "two:9092"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "pipeline",
        "sasl_plain_password": PASSWORD,
        "ssl_cafile": ca_file,
    }
    assert secured.librdkafka(found.kafka) == {
        "bootstrap.servers": "one:9092,two:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "pipeline",
        "sasl.password": PASSWORD,
        "ssl.ca.location": ca_file,
    }
    assert secured.user(found.kafka) == "pipeline"


def test_tls_without_a_login_and_a_login_without_tls(ca_file: str) -> None:
    assert "sasl.jaas.config" not in parsed({"protocol": "SSL", "ca_file": ca_file}).kafka
    plain = parsed({**LOGIN, "protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN"}).kafka
    assert "plain.PlainLoginModule" in plain["sasl.jaas.config"]
    assert not any(key.startswith("ssl.") for key in plain)
    assert secured.user(parsed({"protocol": "PLAINTEXT"}).kafka) is None


def test_a_path_of_this_folder_is_one_for_every_process(
    ca_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ca.pem").write_text(Path(ca_file).read_text())
    assert parsed({**LOGIN, "ca_file": "ca.pem"}).kafka["ssl.truststore.location"] == str(tmp_path / "ca.pem")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"protocol": ""}, "[security] protocol: missing"),
        ({"protocol": "TLS"}, "[security] protocol: 'TLS' is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"protocol": "SSL"}, "[security] mechanism: SSL has no users; SASL_SSL has"),
        ({"protocol": "PLAINTEXT"}, "[security] mechanism: PLAINTEXT has no users; SASL_SSL has"),
        ({"mechanism": ""}, "[security] mechanism: missing, and protocol is SASL_SSL"),
        ({"mechanism": "GSSAPI"}, "[security] mechanism: 'GSSAPI' is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"user": ""}, "[security] user: missing, and protocol is SASL_SSL"),
        ({"user": "a\nb"}, "[security] user: a line break or another control character is in it"),
        ({"password": f"{PASSWORD}\0"}, "[security] password: a line break or another control character is in it"),
        ({"password": ""}, "[security] password: missing"),
        ({"password": 4711}, "[security] password: text in quotes is expected"),
        ({"password": [PASSWORD]}, "[security] password: text in quotes is expected"),
        ({"password_env": "X"}, "[security] password: there is password and password_env"),
        (
            {"password": "", "password_env": "X"},
            "[security] password_env: the environment variable X is not set, or empty",
        ),
        ({"password": "", "password_file": "/no"}, "[security] password_file: /no: No such file or directory"),
        ({"password": "", "password_file": "/dev/null"}, "[security] password_file: /dev/null is empty"),
        ({"ca_file": "/no/such"}, "[security] ca_file: /no/such: No such file or directory"),
        ({"ca_file": "/dev/null"}, "[security] ca_file: /dev/null has no certificates in PEM"),
        ({"ca_file": "x", "protocol": "SASL_PLAINTEXT"}, "[security] ca_file: SASL_PLAINTEXT has no TLS; SASL_SSL has"),
        ({"pasword": PASSWORD}, "[security] pasword: unknown key; did you mean password?"),
        ({"keystore": "x"}, "[security] keystore: unknown key"),
    ],
)  # fmt: skip
def test_what_is_half_said_or_not_known_is_one_line(
    monkeypatch: pytest.MonkeyPatch, changed: Mapping[str, object], message: str
) -> None:
    monkeypatch.delenv("X", raising=False)
    assert refused({**LOGIN, **changed}).message == message


@pytest.mark.parametrize("table", [{}, PASSWORD, [LOGIN]])
def test_a_table_that_is_empty_or_none_is_no_plain_client(table: object) -> None:
    assert refused(table).message.startswith(("[security] protocol: missing", "security: a table [security]"))


@pytest.mark.parametrize(
    ("kafka", "message"),
    [
        ({"security.protcol": "SASL_SSL"}, "[kafka] security.protcol: unknown key; did you mean security.protocol?"),
        ({"securty.protocol": "SASL_SSL"}, "[kafka] securty.protocol: unknown key; did you mean security.protocol?"),
        ({"security.protocol": "sasl"}, "[kafka] security.protocol: 'sasl' is not one of PLAINTEXT, SSL, SASL"),
        (
            {"sasl.jaas.config": PASSWORD},
            "[kafka] sasl.jaas.config: without effect, because security.protocol is PLAINTEXT",
        ),
        ({"ssl.truststore.location": "x"}, "[kafka] ssl.truststore.location: without effect, because security"),
        ({"sasl.username": "x", "security.protocol": "SASL_SSL"}, "[kafka] sasl.username: unknown key"),
        (
            {"security.protocol": "SSL", "ssl.truststore.loaction": "x"},
            "[kafka] ssl.truststore.loaction: unknown key; did you mean ssl.truststore.location?",
        ),
    ],
)  # fmt: skip
def test_what_the_java_client_would_ignore_in_the_table_of_its_own_keys(kafka: Mapping[str, str], message: str) -> None:
    with pytest.raises(PipelineError) as raised:
        config.parse({"checkpoints": "c", "lake": {"path": "l"}, "kafka": {"bootstrap.servers": "one:1", **kafka}})
    assert raised.value.message.startswith(message)
    assert PASSWORD not in str(raised.value)


def test_two_tables_do_not_speak_of_the_same() -> None:
    assert refused(LOGIN, **{"security.protocol": "SASL_SSL"}).message == (
        "[kafka] security.protocol: there is [security] too"
    )


def test_a_password_from_the_environment_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\r\n")
    given = {key: value for key, value in LOGIN.items() if key != "password"}
    from_file = secured.settings(secured.Security(**given, password_file=str(file)))
    from_environment = secured.settings(secured.Security(**given, password_env="P"), {"P": PASSWORD})
    assert from_file == from_environment == secured.settings(secured.Security(**LOGIN))


printable = st.text(st.characters(blacklist_categories=["Cc", "Cs"]), min_size=1)


@given(user=printable, password=printable)
def test_any_text_is_quoted_so_that_it_is_read_as_it_was(user: str, password: str) -> None:
    security = secured.Security("SASL_PLAINTEXT", "PLAIN", user, password)
    told = secured.librdkafka({"bootstrap.servers": "one:1", **secured.settings(security)})
    assert (told["sasl.username"], told["sasl.password"]) == (user, password)


@pytest.mark.parametrize(
    ("written", "read"), [('"a\\"b\\\\c"', 'a"b\\c'), ("'a b;c'", "a b;c"), ("word", "word"), ('"\\101\\n"', "A\n")]
)
def test_a_jaas_line_of_others_is_read_as_java_reads_it(written: str, read: str) -> None:
    line = f"x.PlainLoginModule required username=me password={written};"
    kafka = {"bootstrap.servers": "one:1", "security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": line}
    assert secured.kafka_python(kafka)["sasl_plain_password"] == read


def test_secrets_stand_in_no_repr() -> None:
    line = f'x.PlainLoginModule required username="me" password="{PASSWORD}";'
    of_kafka = config.parse(
        {
            "checkpoints": "c",
            "lake": {"path": "l"},
            "kafka": {"bootstrap.servers": "one:1", "security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": line},
            "spark": {"spark.hadoop.fs.s3a.secret.key": PASSWORD},
        }
    )
    for found in (of_kafka, parsed(LOGIN)):
        for shown in (found, found.kafka, found.kafka_options(), secured.Security(**LOGIN)):
            assert PASSWORD not in repr(shown)
            assert PASSWORD not in f"{shown}"
        for client in (secured.kafka_python, secured.librdkafka):
            told: Any = client(found.kafka)
            assert PASSWORD not in repr(told)
            assert PASSWORD in json.dumps(told), "it is hidden, not lost"


def test_spark_hides_what_is_secret_whatever_spark_hides_besides() -> None:
    for own in ({}, {"spark.sql.redaction.options.regex": "mine"}):
        pattern = session.settings(own)["spark.sql.redaction.options.regex"].replace("(?i)", "")
        for key in ("kafka.sasl.jaas.config", "kafka.ssl.key.password", "kafka.ssl.keystore.key"):
            assert re.search(pattern, key)
        assert not re.search(pattern, "kafka.bootstrap.servers")
        assert re.search(pattern, "mine" if own else "url")
    of_others = {"spark.sql.redaction.string.regex": "mine"}
    assert session.settings(of_others)["spark.sql.redaction.string.regex"].startswith("(?:mine)|")


@pytest.mark.parametrize("password", [PASSWORD, 'quo"te;d', "back\\slash", "a, b) c"])
def test_a_text_that_quotes_settings_is_scrubbed(password: str) -> None:
    found = parsed({**LOGIN, "password": password}).kafka_options()
    line = found["kafka.sasl.jaas.config"]
    for text in (f"Map({', '.join(f'{key} -> {value}' for key, value in found.items())})", line, line[:-1], line[:-3]):
        told = secured.scrubbed(f"plan {text} and more")
        assert told.startswith("plan ")
        assert password[:4] not in told
    assert secured.scrubbed("kafka.ssl.key.password -> abc, x -> y") == "kafka.ssl.key.[hidden], x -> y"
    for text in ('password = "my pass word" y', "ssl.truststore.password -> my,pass, y", "password='my pass', y"):
        assert "pass" not in secured.scrubbed(text).replace("password", "")
    assert "MII" not in secured.scrubbed("-----BEGIN PRIVATE KEY-----\nMIIabc\n-----END PRIVATE KEY-----")
    assert secured.scrubbed("Not authorized to access topics: [x]") == "Not authorized to access topics: [x]"


def test_the_example_of_the_table_is_one(monkeypatch: pytest.MonkeyPatch, ca_file: str) -> None:
    text = (ROOT / "spark" / "pipeline.toml").read_text()
    table = text[text.index("# [security]") :].partition("\n\n")[0]
    lines = [line.removeprefix("# ") for line in table.splitlines() if " = " in line or line == "# [security]"]
    found = tomllib.loads("\n".join(lines))["security"]
    assert set(found) == {"protocol", "mechanism", "user", "password_file", "ca_file"}
    monkeypatch.setattr(secured, "_text", lambda key, path: Path(ca_file).read_text() if key == "ca_file" else "p")
    assert parsed(found).kafka["security.protocol"] == "SASL_SSL"


def test_an_acl_that_is_missing_is_named_with_the_command_that_adds_it() -> None:
    found = parsed(LOGIN)
    assert permissions.needed(found) == {
        "clicks": "READ",
        "orders": "READ",
        "dead-letters": "WRITE",
        "event-windows": "WRITE",
        "user-sessions": "WRITE",
        "conversions": "WRITE",
        "pipeline-metrics": "WRITE",
    }
    error = permissions.refusal(found, "lake: TOPIC_AUTHORIZATION_FAILED", ["orders"])
    assert error.message == "lake: TOPIC_AUTHORIZATION_FAILED: User:pipeline lacks READ on topic orders"
    assert error.advice.splitlines()[1] == (
        "kafka-acls --bootstrap-server one:9092,two:9092 --command-config admin.properties --add "
        "--allow-principal User:pipeline --operation Read --topic orders"
    )


def test_the_page_lists_these_acls() -> None:
    page = (ROOT / "docs" / "pipeline.md").read_text().replace("\\\n", " ")
    for topic, operation in permissions.needed(parsed(LOGIN)).items():
        assert re.search(rf"kafka-acls .*--operation {operation.capitalize()} .*--topic {topic}\b", page), topic
