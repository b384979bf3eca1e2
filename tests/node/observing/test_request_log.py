"""`kafka.request.logger` of a node: a line of JSON for each request while it is on, otherwise none, and no secret in
any.

compat_tests/wire/test_request_log.py compares each key with Apache Kafka's lines.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pykbroker
from pykbroker.dispatch.principals import encode_principal
from pykbroker_wire.apis import APIS
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.json_form import to_json
from pykbroker_wire.message_fields import MESSAGE_FIELDS
from pykbroker_wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.envelope import EnvelopeRequest
from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from pykbroker_wire.primitives import Message
from testkit.messages.catalogue import cases, make
from testkit.nodes.sim import BROKER, TOPIC
from testkit.nodes.wire import Wire, batch, frame_of

NAME = "kafka.request.logger"
LOGGERS = 8
SECRET = b"plAnted5ecret" * 3
PREFIX = "Completed request:"


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())

    def take(self) -> list[dict[str, Any]]:
        """Return the lines since the last call."""
        texts, self.texts = self.texts, []
        assert all(text.startswith(PREFIX) and text.isascii() and text.isprintable() for text in texts)
        return [json.loads(text.removeprefix(PREFIX)) for text in texts]


@pytest.fixture
def kept() -> Iterator[Kept]:
    logger = logging.getLogger(NAME)
    handler = Kept()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def broker() -> Iterator[pykbroker.Broker]:
    with pykbroker.Broker() as running:
        yield running


@pytest.fixture
def wire(broker: pykbroker.Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap_servers) as client:
        yield client


def turn_on(wire: Wire, level: str | None = "DEBUG") -> None:
    assert wire.alter(LOGGERS, "1", {NAME: level}).error_code == ErrorCode.NONE


def test_it_is_off_until_an_admin_turns_it_on_and_again_later(kept: Kept, wire: Wire) -> None:
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.DEBUG)
    try:
        wire.metadata()
        assert kept.take() == []
        turn_on(wire)
        wire.metadata()
        assert [line["requestHeader"]["requestApiKeyName"] for line in kept.take()] == ["METADATA"]
        turn_on(wire, None)
        kept.take()
        wire.metadata()
        turn_on(wire, "INFO")
        wire.metadata()
        assert kept.take() == []
        turn_on(wire, "TRACE")
        wire.metadata()
        assert len(kept.take()) == 1
    finally:
        root.setLevel(before)


def test_what_a_line_says(kept: Kept, wire: Wire) -> None:
    turn_on(wire)
    wire.call(ApiVersionsRequest(client_software_name="mine", client_software_version="1.5"))
    (line,) = kept.take()
    port = wire.socket.getpeername()[1], wire.socket.getsockname()[1]
    number = line["connection"].rpartition("-")[2]
    assert line["connection"] == f"127.0.0.1:{port[0]}-127.0.0.1:{port[1]}-0-{number}"
    assert line["requestHeader"] == {
        "requestApiKey": 18,
        "requestApiVersion": 5,
        "correlationId": 2,
        "clientId": "test",
        "requestApiKeyName": "API_VERSIONS",
    }
    assert line["request"] == {
        "clientSoftwareName": "mine",
        "clientSoftwareVersion": "1.5",
        "clusterId": None,
        "nodeId": -1,
    }
    assert line["response"]["errorCode"] == 0
    assert line["clientInformation"] == {"softwareName": "mine", "softwareVersion": "1.5"}
    assert (line["isForwarded"], line["principal"], line["listener"]) == (False, "User:ANONYMOUS", "PLAINTEXT")
    times = [line[f"{part}TimeMs"] for part in ("requestQueue", "local", "remote", "responseQueue", "send")]
    assert line["totalTimeMs"] == pytest.approx(sum(times), abs=0.01)


def test_records_are_their_size(kept: Kept, wire: Wire) -> None:
    wire.create("t")
    turn_on(wire)
    data = batch(b"x" * 100)
    wire.produce("t", data)
    wire.fetch("t")
    wire.send(wire.fetch_request("t", 1, max_wait_ms=1), 12)
    assert wire.receive(1, 12).error_code == 0
    produced, fetched, empty = (line for line in kept.take() if line["requestHeader"]["requestApiKey"] in (0, 1))
    (asked,) = produced["request"]["topicData"][0]["partitionData"]
    assert asked == {"index": 0, "recordsSizeInBytes": len(data)}
    assert fetched["response"]["responses"][0]["partitions"][0]["recordsSizeInBytes"] == len(data)
    assert empty["remoteTimeMs"] > 0


def test_a_request_without_an_answer(kept: Kept, wire: Wire) -> None:
    wire.create("t")
    turn_on(wire)
    from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

    part = PartitionProduceData(index=0, records=batch(b"x"))
    wire.send(
        ProduceRequest(
            transactional_id=None, acks=0, timeout_ms=0, topic_data=[TopicProduceData(name="t", partition_data=[part])]
        ),
        12,
    )
    wire.metadata()
    assert [line["response"] == "" for line in kept.take()] == [True, False]


def test_a_forwarded_request_has_two_lines(kept: Kept, wire: Wire) -> None:
    turn_on(wire)
    wire.create("t")
    at_controller, at_broker = (line for line in kept.take() if line["requestHeader"]["requestApiKey"] == 19)
    assert [at_controller["isForwarded"], at_broker["isForwarded"]] == [True, False]
    assert [at_controller["listener"], at_broker["listener"]] == ["CONTROLLER", "PLAINTEXT"]
    for part in ("requestHeader", "request", "response"):
        assert at_controller[part] == at_broker[part]


def test_the_principal_is_that_of_the_client_behind_the_envelope(
    kept: Kept, broker: pykbroker.Broker, wire: Wire
) -> None:
    turn_on(wire)
    kept.take()
    topics = [CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
    frame = frame_of(CreateTopicsRequest(topics=topics), 7, correlation_id=5, client_id="her\r\nclient\u2028\x9b")
    port = next(each.port for each in broker._node.listeners if each.name == "CONTROLLER")
    with Wire(f"127.0.0.1:{port}") as node:
        request = EnvelopeRequest(
            request_data=frame[4:],
            request_principal=encode_principal("User:alice\nINFO"),
            client_host_address=b"\x7f\0\0\1",
        )
        assert node.call(request).error_code == ErrorCode.NONE
        request.client_host_address = b"?"
        assert node.call(request).error_code == ErrorCode.INVALID_REQUEST
    inner, outer = (line for line in kept.take() if line["listener"] == "CONTROLLER")
    assert (inner["isForwarded"], inner["principal"]) == (True, "User:alice\nINFO")
    assert inner["requestHeader"]["clientId"] == "her\r\nclient\u2028\x9b"
    assert f"-127.0.0.1:{node_port(inner)}-" in inner["connection"]
    # An Envelope whose request is invalid has its own line, without its content.
    assert (outer["requestHeader"]["requestApiKeyName"], outer["request"]["requestData"]) == ("ENVELOPE", "[hidden]")


def node_port(line: dict[str, Any]) -> str:
    port: str = line["connection"].split("-")[1].rpartition(":")[2]
    return port


def test_no_line_has_a_secret(kept: Kept, wire: Wire) -> None:
    wire.create("t")
    turn_on(wire)
    text = SECRET.decode()
    wire.alter(
        BROKER, "1", {"listener.name.x.ssl.key.password": text, "own.password": text, "message.max.bytes": "2000"}
    )
    wire.alter(TOPIC, "t", {"own.password": text, "retention.ms": "7777"})
    wire.call(
        AlterUserScramCredentialsRequest(
            deletions=[],
            upsertions=[
                ScramCredentialUpsertion(name="u", mechanism=1, iterations=4096, salt=SECRET, salted_password=SECRET)
            ],
        )
    )
    wire.call(SaslAuthenticateRequest(auth_bytes=SECRET))
    wire.describe(BROKER, "1")
    told = "".join(kept.texts)
    lines = kept.take()
    assert len(lines) > 5
    assert "message.max.bytes" in told
    assert '"2000"' in told
    assert '"7777"' in told
    for form in (text, base64.b64encode(SECRET).decode()[:40], SECRET.hex()):
        assert form not in told
    changed = next(line for line in lines if line["requestHeader"]["requestApiKeyName"] == "INCREMENTAL_ALTER_CONFIGS")
    values = {config["name"]: config["value"] for config in changed["request"]["resources"][0]["configs"]}
    assert values == {
        "listener.name.x.ssl.key.password": "[hidden]",
        "own.password": "[hidden]",
        "message.max.bytes": "2000",
    }


def test_every_message_has_a_json_form() -> None:
    seen = set()
    for item, version in cases():
        if item.message.kind in ("request", "response"):
            message = make(item, version, "random", 7)
            said = json.loads(json.dumps(to_json(message, version, fields=MESSAGE_FIELDS, sizes=True)))
            assert said.keys() <= {field.name[0].lower() + field.name[1:] for field in item.top.fields}
            seen.add(item.message.name)
    assert {f"{APIS[key].name}{word}" for key in APIS for word in ("Request", "Response")} <= seen


@given(st.text())
def test_any_text_stays_in_its_line(text: str) -> None:
    from pykbroker.dispatch.request_log import _text

    line = _text({"name": text, "number": 0.25})
    assert line.isascii()
    assert line.isprintable()
    if not any(0xD800 <= ord(char) < 0xE000 for char in text):
        assert json.loads(line) == {"name": text, "number": 0.25}


def test_a_hidden_value_stands_in_place_of_the_secret_one() -> None:
    def hide(message: Message, attribute: str) -> str | None:
        return "(no)" if attribute == "auth_bytes" else None

    assert to_json(SaslAuthenticateRequest(auth_bytes=b"x"), 2, fields=MESSAGE_FIELDS, hide=hide) == {
        "authBytes": "(no)"
    }
