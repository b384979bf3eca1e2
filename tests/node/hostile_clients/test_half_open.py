"""Thousands of connections that stop in the middle do not disturb working clients.

A separate process makes the connections, so that the node has the descriptors of one side only.
"""

from __future__ import annotations

import gc
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from pykbroker.runtime.descriptor_budget import divide
from pykbroker.sasl.sasl_client import Login
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_cluster import DescribeClusterRequest
from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from pykbroker_wire.messages.sasl_handshake import SaslHandshakeRequest
from testkit.certificates import client_context, node_properties
from testkit.nodes.wire import Wire, batch, frame_of
from tests.node.secured_listeners.test_tls_listeners import Secured

POINTS: Final = ",".join(
    f"{name}://localhost:0" for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", "CONTROLLER", "LOCKED")
)
MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PROPERTIES: Final = {
    **node_properties(),
    "listeners": POINTS,
    "advertised.listeners": POINTS,
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,"
    "CONTROLLER:PLAINTEXT,LOCKED:SASL_SSL",
    # The first listener of controllers is plain, the second is SASL_SSL.
    "controller.listener.names": "CONTROLLER,LOCKED",
    "sasl.enabled.mechanisms": "PLAIN",
    **{
        f"listener.name.{name}.plain.sasl.jaas.config": f'{MODULE} user_alice="alice-secret";'
        for name in ("sasl_plaintext", "sasl_ssl", "locked")
    },
    "socket.listen.backlog.size": "1000",
    # No connection ends during the test.
    "pykbroker.connection.request.receive.timeout.ms": "600000",
}
HANDSHAKE: Final = frame_of(SaslHandshakeRequest(mechanism="PLAIN"), 1, client_id="c")
KINDS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
CONTROLLERS: Final = {"CONTROLLER": "PLAINTEXT", "LOCKED": "SASL_SSL"}
KB: Final = 1024

# Connects the requested number of times, sends the same bytes on each connection, waits for the first byte of each
# response if there is one, reports that, and holds all connections until its input ends.
OPENER: Final = """
import resource, socket, sys
port, count, answered, data = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "True", bytes.fromhex(sys.argv[4])
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
open_ones = []
for start in range(0, count, 200):
    ones = [socket.create_connection(("localhost", port), timeout=120) for _ in range(min(200, count - start))]
    for one in ones:
        one.sendall(data)
    if answered:
        for one in ones:
            assert one.recv(1)
    open_ones += ones
print("open", flush=True)
sys.stdin.read()
"""


@contextmanager
def half_open(node: Secured, listener: str, count: int, data: bytes, *, answered: bool) -> Iterator[None]:
    port = node.address(listener).rpartition(":")[2]
    command = [sys.executable, "-c", OPENER, port, str(count), str(answered), data.hex()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as opener:
        assert opener.stdin is not None
        assert opener.stdout is not None
        try:
            assert opener.stdout.readline() == "open\n"
            yield
        finally:
            opener.stdin.close()
            assert opener.wait(120) == 0


def hello() -> bytes:
    """Return the first message of TLS."""
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def client(node: Secured, listener: str, folder: Path) -> Wire:
    kind = CONTROLLERS.get(listener, listener)
    tls = client_context(folder) if kind.endswith("SSL") else None
    wire = Wire(node.address(listener), tls=tls, timeout=60)
    if kind.startswith("SASL"):
        assert wire.call(SaslHandshakeRequest(mechanism="PLAIN")).error_code == ErrorCode.NONE
        token = Login("PLAIN", "alice", "alice-secret").begin().first()
        assert wire.call(SaslAuthenticateRequest(auth_bytes=token)).error_code == ErrorCode.NONE
    return wire


def resident() -> int:
    """Return the bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def work(wire: Wire, topic: str) -> None:
    answer = wire.produce(topic, batch(b"value"))
    assert answer.error_code == ErrorCode.NONE
    assert wire.fetch(topic, answer.base_offset).records


def ask(wire: Wire) -> None:
    """Send a request that a client of a controller sends."""
    assert wire.call(DescribeClusterRequest(endpoint_type=2)).error_code == ErrorCode.NONE


def run(folder: Path, count: int) -> None:
    """Open `count` connections of each listed kind, one kind after another, and then of all."""
    stops = [
        ("PLAINTEXT", b"\0\0\1\0\0", False),
        ("SSL", b"", False),
        ("SSL", hello()[:40], False),
        ("SSL", hello(), True),
        ("SASL_PLAINTEXT", HANDSHAKE, True),
        ("SASL_SSL", hello(), True),
        ("CONTROLLER", b"\0\0\1\0\0", False),
        ("LOCKED", hello()[:40], False),
        ("LOCKED", hello(), True),
    ]
    with Secured(folder / "node", PROPERTIES) as node, ExitStack() as stack:
        wires = {kind: stack.enter_context(client(node, kind, folder)) for kind in KINDS}
        controllers = [stack.enter_context(client(node, name, folder)) for name in CONTROLLERS]
        for kind, wire in wires.items():
            wire.create(kind)
            work(wire, kind)
        for listener, data, answered in stops:
            before = resident()
            with half_open(node, listener, count, data, answered=answered):
                per_connection = (resident() - before) / count
                assert per_connection <= 64 * KB, f"{listener} after {len(data)} bytes: {per_connection / KB:.0f} KiB"
                for kind, wire in wires.items():
                    work(wire, kind)
                for each in controllers:
                    ask(each)
                with client(node, listener, folder) as another:
                    if listener in CONTROLLERS:
                        ask(another)
                    else:
                        work(another, listener)
        with ExitStack() as all_of_them:
            for listener, data, answered in stops:
                several = half_open(node, listener, count // len(stops), data, answered=answered)
                all_of_them.enter_context(several)
            for kind, wire in wires.items():
                work(wire, kind)
            for each in controllers:
                ask(each)
        for kind, wire in wires.items():
            work(wire, kind)


@pytest.mark.slow
def test_500_half_open_connections_disturb_no_client(tmp_path: Path) -> None:
    run(tmp_path, 500)


@pytest.mark.long(amount="10,000 half-open connections of each of 9 kinds")
@pytest.mark.timeout(1800)
def test_10000_half_open_connections_disturb_no_client(tmp_path: Path) -> None:
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if divide(hard).connections < 10_000 + 1_000:
        pytest.skip(f"this machine allows {hard} descriptors, which are too few for 10,000 connections of one listener")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    run(tmp_path, 10_000)


@pytest.mark.slow
def test_connections_that_ended_in_a_handshake_leave_no_memory(tmp_path: Path) -> None:
    """The collector of cycles comes late: each connection would hold 50 KiB until then."""
    with Secured(tmp_path / "node", PROPERTIES) as node:
        data = hello()

        def end_some(count: int) -> None:
            for _ in range(count):
                with Wire(node.address("SSL"), timeout=60) as wire:
                    wire.send_bytes(data)
                    assert wire.read(1)

        end_some(50)
        gc.collect()
        gc.disable()
        try:
            before = resident()
            end_some(400)
            assert resident() - before < 400 * 16 * KB
        finally:
            gc.enable()
