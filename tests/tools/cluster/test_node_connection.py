"""The connection of a tool to a node: TLS, SASL, sessions that end, and nodes that close it."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pykbroker.testing import SecureBroker
from pykbroker.tools.cluster import topics
from pykbroker.tools.cluster.asked_cluster import AskedCluster
from pykbroker.tools.cluster.asked_node import Asked, AskedNode
from pykbroker.tools.cluster.client_properties import settings_of
from pykbroker.tools.cluster.client_security import ClientSecurity
from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.cluster.patience import ClientPatience
from pykbroker_wire.apis import APIS, ApiKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.headers import RequestHeader, encode_response
from pykbroker_wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataResponse
from pykbroker_wire.primitives import TopLevel
from testkit.certificates import node_identity

LIFETIME_MS = 3_600_000


class AnsweringNode:
    """A node that answers one request a connection after ApiVersions, and then closes the connection. It answers
    nothing if `is_silent`."""

    def __init__(self, *, is_silent: bool = False) -> None:
        self._is_silent = is_silent
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.connections = 0
        self.has_closed = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _serve(self) -> None:
        served = [
            ApiVersion(api_key=key, min_version=0, max_version=APIS[key].max_version)
            for key in (ApiKey.API_VERSIONS, ApiKey.METADATA)
        ]
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                self._answer(connection, ApiVersionsResponse(api_keys=served))
                if self._is_silent:
                    while connection.recv(4096):
                        pass
                    continue
                self._answer(connection, MetadataResponse(controller_id=self.connections))
            self.has_closed.set()

    @staticmethod
    def _answer(connection: socket.socket, message: TopLevel) -> None:
        size = int.from_bytes(connection.recv(4), "big")
        header, _ = RequestHeader.decode(connection.recv(size, socket.MSG_WAITALL))
        body = message.encode(header.version)
        frame = encode_response(header.correlation_id, header.api_key, header.version, body)
        connection.sendall(b"".join(frame))


def metadata(node: AskedNode, timeout_ms: int = 30_000) -> MetadataResponse:
    return node.ask(Asked(MetadataRequest(topics=[]), MetadataResponse), timeout_ms)


def test_a_connection_that_the_node_has_closed_is_made_again() -> None:
    node = AnsweringNode()
    asked = AskedNode(node.address, "tool", ClientSecurity(), 30_000)
    for number in (1, 2, 3):
        assert metadata(asked).controller_id == number
        assert node.has_closed.wait(30)
        node.has_closed.clear()
    asked.close()
    node.close()


def test_an_address_for_which_there_is_no_socket_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    node = AnsweringNode()
    host, port = node.address.split(":")
    [usual] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    unknown = (1000, *usual[1:])
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [unknown, usual])
    asked = AskedNode(node.address, "tool", ClientSecurity(), 30_000)
    assert metadata(asked).controller_id == 1
    asked.close()
    node.close()


def test_no_late_answer_is_taken_for_the_next_one() -> None:
    node = AnsweringNode(is_silent=True)
    asked = AskedNode(node.address, "tool", ClientSecurity(), 30_000)
    for _ in range(2):
        with pytest.raises(AskFailed, match=f"^{node.address} does not answer: no answer within 20 ms$"):
            metadata(asked, timeout_ms=20)
    assert node.connections == 2
    asked.close()
    node.close()


def test_a_wait_ends_early_when_the_client_gives_up() -> None:
    node = AnsweringNode(is_silent=True)
    patience = ClientPatience()
    asked = AskedNode(node.address, "tool", ClientSecurity(), 600_000, patience)
    asked.versions()
    threading.Timer(0.05, patience.give_up, [0]).start()
    with pytest.raises(AskFailed, match="does not answer"):
        metadata(asked, timeout_ms=600_000)
    # The node is not asked again.
    with pytest.raises(AskFailed, match=f"^{node.address} does not answer$"):
        metadata(asked, timeout_ms=600_000)
    assert node.connections == 1
    asked.close()
    node.close()


def test_a_connection_that_nothing_takes_is_given_up() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        host, port = listening.getsockname()
        patience = ClientPatience()
        asked = AskedNode(f"{host}:{port}", "tool", ClientSecurity(), 600_000, patience)
        patience.give_up(0)
        with contextlib.ExitStack() as stack:
            # The kernel drops further connections while the queue of the listener is full.
            for _ in range(3):
                made = stack.enter_context(socket.socket())
                made.setblocking(False)
                made.connect_ex((host, port))
            with pytest.raises(AskFailed, match="cannot be reached: no connection within 1"):
                asked.versions()


def test_a_handshake_is_given_up() -> None:
    patience = ClientPatience()
    patience.give_up(0)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        asked = AskedNode(address, "tool", ClientSecurity("SSL", ssl.create_default_context()), 600_000, patience)
        with pytest.raises(AskFailed, match="does not answer"):
            asked.versions()


@pytest.fixture(scope="module")
def secured() -> Iterator[SecureBroker]:
    with SecureBroker(config={"connections.max.reauth.ms": LIFETIME_MS}) as broker:
        yield broker


def reached(broker: SecureBroker, properties: Mapping[str, str]) -> AskedCluster:
    return AskedCluster(settings_of({**broker.java(), **properties}, broker.bootstrap_servers, patient=False))


@pytest.mark.slow
def test_scram_over_tls(secured: SecureBroker) -> None:
    with reached(secured, {}) as cluster:
        assert topics.listed(cluster) == []
        # The node has sent tickets of the TLS session by now, which are no sign that it has closed the connection.
        connection = cluster._any()._connection
        topics.listed(cluster)
        assert cluster._any()._connection is connection


@pytest.mark.slow
def test_a_session_is_renewed_before_it_ends(secured: SecureBroker) -> None:
    now = time.monotonic()
    with reached(secured, {}) as cluster:
        topics.listed(cluster)
        connection = cluster._any()._connection
        assert connection is not None
        due = connection._renew_at
        assert due is not None
        assert 0.8 * LIFETIME_MS < (due - now) * 1000 < LIFETIME_MS
        connection._renew_at = now
        topics.listed(cluster)
        assert connection._renew_at > now
        assert cluster._any()._connection is connection


@pytest.mark.slow
def test_a_wrong_password_has_the_text_of_the_node(secured: SecureBroker) -> None:
    line = 'ScramLoginModule required username="alice" password="not-it";'
    with reached(secured, {"sasl.jaas.config": line}) as cluster, pytest.raises(AskFailed) as caught:
        topics.listed(cluster)
    assert caught.value.name == "org.apache.kafka.common.errors.SaslAuthenticationException"
    assert str(caught.value).startswith("Authentication failed during authentication due to invalid credentials")


@pytest.mark.slow
def test_a_node_whose_certificate_is_not_trusted(secured: SecureBroker) -> None:
    of_the_system = {key: text for key, text in secured.java().items() if not key.startswith("ssl.truststore")}
    settings = settings_of(of_the_system, secured.bootstrap_servers, patient=False)
    with AskedCluster(settings) as cluster, pytest.raises(AskFailed, match="certificate verify failed"):
        topics.listed(cluster)


def test_a_certificate_that_is_not_trusted_is_no_failure_that_passes(tmp_path: Path) -> None:
    identity = node_identity()
    (tmp_path / "node.pem").write_bytes(identity.key_pem + identity.chain_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "node.pem")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"

        def serve() -> None:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                context.wrap_socket(connection, server_side=True)

        thread = threading.Thread(target=serve)
        thread.start()
        # Tools by the names of Apache Kafka's are patient.
        settings = settings_of({"security.protocol": "SSL"}, address, patient=True)
        with AskedCluster(settings) as cluster, pytest.raises(AskFailed, match="certificate verify failed") as caught:
            cluster.versions()
        thread.join()
    assert caught.value.name == "org.apache.kafka.common.errors.SslAuthenticationException"
    assert not caught.value.passes


def test_a_node_that_speaks_another_protocol_is_no_node() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(1000)

        thread = threading.Thread(target=serve)
        thread.start()
        asked = AskedNode(address, "tool", ClientSecurity(), 30_000)
        with pytest.raises(
            AskFailed, match=f"^{address} cannot be reached: the first answer cannot be used: "
        ) as caught:
            asked.versions()
        thread.join()
    assert caught.value.code == ErrorCode.NETWORK_EXCEPTION
    assert int(ApiKey.API_VERSIONS) == 18
