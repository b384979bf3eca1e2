"""franz-go, sarama and KafkaJS with each mechanism, with and without TLS, on one node with ACLs. The right password
writes and reads; a wrong one and a topic without an ACL raise the client's own errors.

Each client renews its session on its connection, and opens no other one while it writes for longer than a session
lasts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from compat_tests.built import go_program, npm_packages
from compat_tests.remote import Program
from compat_tests.sasl.secured import USERS
from compat_tests.secured_clients.said import CASES, PROGRAMS, PROTOCOLS
from compat_tests.secured_clients.secured_listeners import DENIED, SecuredListeners, secured_listeners
from testkit import needs

pytestmark = pytest.mark.slow
SOURCES: Final = Path(__file__).parents[1]
CLIENTS: Final = tuple(PROGRAMS)


def command(client: str) -> list[str]:
    if client == "kafkajs":
        packages = npm_packages(SOURCES / "kafkajs")
        program = os.fspath(SOURCES / "kafkajs" / "client.js")
        return ["env", f"NODE_PATH={packages}", "KAFKAJS_NO_PARTITIONER_WARNING=1", needs.program("node"), program]
    return [os.fspath(go_program(SOURCES / {"franz-go": "go", "sarama": "sarama"}[client]))]


@pytest.fixture(scope="module")
def secured(against: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredListeners]:
    with secured_listeners(against, tmp_path_factory.mktemp("secured"), CLIENTS) as made:
        yield made


@pytest.fixture(scope="module", params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


#: protocol, mechanism, password, topic, duration of the writing -> the answer of the program
Ask = Callable[[str, str, str, str, int], dict[str, Any]]


@pytest.fixture(scope="module")
def ask(client: str, secured: SecuredListeners, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    program = Program(command(client), tmp_path_factory.mktemp(client) / "stderr.log")

    def made(protocol: str, mechanism: str, password: str, topic: str, duration_ms: int) -> dict[str, Any]:
        fields = {
            "security_protocol": protocol,
            "authority": secured.authority,
            "mechanism": mechanism,
            "user": USERS[mechanism][0],
            "password": password,
            "duration_ms": duration_ms,
        }
        answer = program.ask("secured", bootstrap=secured.address(protocol), topic=topic, secured=fields)
        assert isinstance(answer, dict)
        return answer

    try:
        yield made
    finally:
        program.close()


@pytest.mark.parametrize(("protocol", "mechanism"), CASES)
def test_writes_and_reads(ask: Ask, client: str, protocol: str, mechanism: str) -> None:
    """One mechanism of each protocol writes for longer than a session lasts."""
    topic = f"{client}-{protocol}-{mechanism}"
    answer = ask(protocol, mechanism, USERS[mechanism][1], topic, 3000 if mechanism == "SCRAM-SHA-512" else 0)
    assert answer["error"] == ""
    assert len(answer["values"]) >= 3
    assert answer["values"] == [str(number) for number in range(len(answer["values"]))]
    at_first, at_last = answer["connections"]
    assert 0 < at_first == at_last


@pytest.mark.parametrize(("protocol", "mechanism"), CASES)
def test_a_wrong_password(ask: Ask, client: str, protocol: str, mechanism: str) -> None:
    assert (
        PROGRAMS[client].wrong_password
        in ask(protocol, mechanism, "wrong", f"{client}-{protocol}-{mechanism}", 0)["error"]
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_without_an_acl(ask: Ask, client: str, protocol: str) -> None:
    answer = ask(protocol, "SCRAM-SHA-256", USERS["SCRAM-SHA-256"][1], DENIED, 0)
    assert PROGRAMS[client].denied_topic in answer["error"]
