"""The cost of TLS and SCRAM, on one node of each side with the same properties file.

A separate PLAINTEXT listener is used to create topics and to wait for the node. Both sides must use the same cipher
suite, or the measurement fails. The client keeps its salted password, unlike Apache Kafka's clients, because only the
broker is measured.
"""

from __future__ import annotations

import datetime
import ssl
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from bench import raw
from bench.measurements import Figure, Kind, Measurement, new_topic
from bench.servers import LoneNode, Server, free_port
from pykbroker.sasl.sasl_client import Login, ScramClient
from pykbroker.tls.authority import Authority
from pykbroker_wire.messages.metadata import MetadataRequest
from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from pykbroker_wire.messages.sasl_handshake import SaslHandshakeRequest

MECHANISM = "SCRAM-SHA-512"
CIPHER_SUITE = "TLS_AES_256_GCM_SHA384"
_USER, _PASSWORD = "alice", "alice-secret"
_LOGGING_IN = 4


class SecuredNode(LoneNode):
    """A combined node with the listeners PLAINTEXT, SSL and SASL_SSL."""

    def __init__(self, side: type[Server]) -> None:
        super().__init__()
        self.name = f"secured {side.name}"
        self.root = side.root
        self._side = side
        self._properties = self.directory / "server.properties"
        self.tls_address = ("127.0.0.1", free_port())
        self.sasl_address = ("127.0.0.1", free_port())
        now = datetime.datetime.now(datetime.UTC)
        authority = Authority.create("Authority of the benchmark", now=now, days=2)
        node = authority.issue("node", now=now, days=2, hosts=("127.0.0.1",))
        self._key_store = self.directory / "node.pem"
        self._key_store.write_bytes(node.key_pem + node.chain_pem)
        self._key_store.chmod(0o600)
        self.context = ssl.create_default_context(cadata=authority.certificate_pem.decode())
        self.login = Login(MECHANISM, _USER, _PASSWORD)

    def prepare(self) -> None:
        controller = f"127.0.0.1:{free_port()}"
        own = {"PLAINTEXT": self.address, "SSL": self.tls_address, "SASL_SSL": self.sasl_address}
        listeners = [f"{name}://{host}:{port}" for name, (host, port) in own.items()]
        values = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": ",".join([*listeners, f"CONTROLLER://{controller}"]),
            "advertised.listeners": ",".join([*listeners, f"CONTROLLER://{controller}"]),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": controller,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._key_store),
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "log.dirs": str(self.directory / "data"),
            "offsets.topic.replication.factor": "1",
        }
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        user = f"{MECHANISM}=[name={_USER},password={_PASSWORD}]"
        command = self._side.formatting(
            self._properties, "--standalone", "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qg", "--add-scram", user
        )
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{self.name} was not formatted: {done.stdout}{done.stderr}")

    def command(self) -> list[str]:
        return self._side.starting(self._properties)

    def check_cipher(self) -> None:
        """Raises RuntimeError if a connection does not have the cipher suite that both sides must use."""
        client = raw.Client(self.tls_address, self.context)
        assert isinstance(client.socket, ssl.SSLSocket)
        cipher = client.socket.cipher()
        client.close()
        if cipher is None or cipher[0] != CIPHER_SUITE:
            raise RuntimeError(f"{self.name} speaks {cipher}, not {CIPHER_SUITE}")


def _produce(
    connections: int, in_flight: int, records: int, value_bytes: int, unit: str
) -> Callable[[SecuredNode, float], dict[str, float]]:
    def measure(node: SecuredNode, seconds: float) -> dict[str, float]:
        node.check_cipher()
        _, topic_id = new_topic(node, connections)

        def load(duration: float) -> raw.Load:
            return raw.produce(
                node.tls_address,
                topic_id,
                connections=connections,
                in_flight=in_flight,
                records=records,
                value_bytes=value_bytes,
                seconds=duration,
                tls=node.context,
            )

        load(1.0)
        cpu = node.cpu_seconds()
        found = load(seconds)
        result = {
            "throughput": found.megabytes_per_second if unit == "MB/s" else found.requests_per_second,
            "broker CPU, µs/request": (node.cpu_seconds() - cpu) / found.requests * 1e6,
            "driver, share of a core": found.driver_share,
        }
        if found.latencies:
            result |= {"p50": found.percentile(0.5) * 1e6, "p99": found.percentile(0.99) * 1e6}
        return result

    return measure


def _fetch(node: SecuredNode, seconds: float) -> dict[str, float]:
    node.check_cipher()
    name, topic_id = new_topic(node)
    raw.produce(node.address, topic_id, connections=1, in_flight=4, records=90, value_bytes=10_000, seconds=0.3)
    client = raw.Client(node.address)
    end = client.end_offset(name, 0)
    client.close()

    def load(duration: float) -> raw.Load:
        return raw.fetch(
            node.tls_address, topic_id, end, fetch_bytes=1 << 20, in_flight=4, seconds=duration, tls=node.context
        )

    load(0.5)
    cpu = node.cpu_seconds()
    found = load(seconds)
    return {
        "throughput": found.megabytes_per_second,
        "broker CPU, ms/MB": (node.cpu_seconds() - cpu) / (found.bytes / 1e6) * 1e3,
        "driver, share of a core": found.driver_share,
    }


def _log_in(node: SecuredNode) -> None:
    """Open a connection: from its SYN to the first answered request after its authentication."""
    client = raw.Client(node.sasl_address, node.context)
    try:
        error = client.call(SaslHandshakeRequest(mechanism=MECHANISM), 1).error_code
        exchange = node.login.begin()
        assert isinstance(exchange, ScramClient)
        token: bytes | None = exchange.first()
        while token is not None and not error:
            answer = client.call(SaslAuthenticateRequest(auth_bytes=token), 2)
            error, token = answer.error_code, exchange.evaluate(answer.auth_bytes) if not answer.error_code else None
        if error or not exchange.is_complete:
            raise RuntimeError(f"{node.name} refuses to authenticate: error {error}")
        if not client.call(MetadataRequest(topics=[]), 12).brokers:
            raise RuntimeError(f"{node.name} knows no broker")
    finally:
        client.close()


def _logins(node: SecuredNode, seconds: float) -> dict[str, float]:
    """Open as many connections as some threads can, one after the other in each thread."""

    def load(duration: float) -> tuple[int, float]:
        begin = time.perf_counter()

        def run(number: int) -> int:
            count = 0
            while time.perf_counter() - begin < duration:
                _log_in(node)
                count += 1
            return count

        with ThreadPoolExecutor(_LOGGING_IN) as pool:
            counts = list(pool.map(run, range(_LOGGING_IN)))
        return sum(counts), time.perf_counter() - begin

    load(1.0)
    cpu, own = node.cpu_seconds(), time.process_time()
    count, elapsed = load(seconds)
    return {
        "rate": count / elapsed,
        "broker CPU, ms/connection": (node.cpu_seconds() - cpu) / count * 1e3,
        "driver, share of a core": (time.process_time() - own) / elapsed,
    }


def _warm_up(node: SecuredNode, seconds: float) -> None:
    """Run the code before it is measured, because a JIT compiler optimises only then; both sides get the same load."""
    for records, value_bytes, in_flight in ((1, 100, 50), (90, 10_000, 4)):
        _produce(1, in_flight, records, value_bytes, "req/s")(node, seconds / 4)
    _fetch(node, seconds / 4)
    _logins(node, seconds / 4)


SECURED_NODE = Kind("secured", SecuredNode, _warm_up)
SECURED: list[Measurement] = [
    Measurement(
        "secured, TLS, Produce 900 KB of 10 KB records, 4 in flight",
        _produce(1, 4, 90, 10_000, "MB/s"),
        (Figure("throughput", "MB/s", target=1),),
        kind=SECURED_NODE,
    ),
    Measurement(
        "secured, TLS, Fetch 1 MB, warm, 4 in flight",
        _fetch,
        (Figure("throughput", "MB/s", target=1.3),),
        kind=SECURED_NODE,
    ),
    Measurement(
        "secured, TLS, Produce 1 x 100 B, 1 connection x 50",
        _produce(1, 50, 1, 100, "req/s"),
        (Figure("throughput", "req/s", target=1),),
        kind=SECURED_NODE,
    ),
    Measurement(
        "secured, TLS, Produce 1 x 100 B, 4 connections x 50",
        _produce(4, 50, 1, 100, "req/s"),
        (Figure("throughput", "req/s", target=1),),
        kind=SECURED_NODE,
    ),
    Measurement(
        "secured, TLS, Produce 1 x 100 B, one in flight",
        _produce(1, 1, 1, 100, "req/s"),
        (
            Figure("throughput", "req/s", target=1),
            Figure("p50", "µs", more_is_better=False),
            Figure("p99", "µs", more_is_better=False),
        ),
        kind=SECURED_NODE,
    ),
    Measurement(
        f"secured, TLS and {MECHANISM}, new connections, {_LOGGING_IN} at a time",
        _logins,
        (Figure("rate", "connections/s", target=1),),
        kind=SECURED_NODE,
    ),
]
