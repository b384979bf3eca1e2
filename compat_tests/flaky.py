"""A proxy between clients and a broker that loses the answer to a Produce request and closes the connection, like a
network that fails at the worst moment. Or it answers itself that the broker leads no partition, like a broker that has
just started. Its broker advertises the proxy's address, so every request passes through it."""

from __future__ import annotations

import contextlib
import socket
import threading

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.headers import RequestHeader, encode_response
from pykbroker_wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

PRODUCE = 0


def read_exactly(source: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        chunk = source.recv(min(count - len(data), 1 << 20))
        if not chunk:
            raise ConnectionError
        data += chunk
    return bytes(data)


def read_frame(source: socket.socket) -> bytes:
    head = read_exactly(source, 4)
    return head + read_exactly(source, int.from_bytes(head, "big"))


def refusal(frame: bytes) -> bytes:
    """Return the answer to a Produce request whose partitions are all led elsewhere."""
    header, pos = RequestHeader.decode(frame, 4)
    request, _ = ProduceRequest.decode(frame, pos, header.version)
    refused = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                PartitionProduceResponse(index=part.index, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
                for part in topic.partition_data
            ],
        )
        for topic in request.topic_data
    ]
    body = ProduceResponse(responses=refused).encode(header.version)
    return b"".join(encode_response(header.correlation_id, PRODUCE, header.version, body))


class FlakyProxy:
    """`lose(n)`: the answers to the next n Produce requests are lost, each with its connection. `refuse(n)`: the n
    Produce requests after these do not reach the broker and are answered with an error. With `held` these answers are
    sent when one more request has come, because the client must have that request on its way before it learns of them.
    """

    def __init__(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._lock = threading.Lock()
        self._to_lose = 0
        self.lost = 0
        self._to_refuse = 0
        self._is_held = False
        threading.Thread(target=self._accept, name="flaky proxy", daemon=True).start()

    def lose(self, count: int) -> None:
        with self._lock:
            self._to_lose, self.lost = count, 0

    def refuse(self, count: int, *, held: bool = False) -> None:
        with self._lock:
            self._to_refuse, self._is_held = count, held

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                broker = socket.create_connection(("localhost", self._broker_port))
                doomed: set[bytes] = set()
                for pump in (self._requests, self._answers):
                    threading.Thread(target=self._run, args=(pump, client, broker, doomed), daemon=True).start()

    def _run(self, pump: object, client: socket.socket, broker: socket.socket, doomed: set[bytes]) -> None:
        assert callable(pump)
        with contextlib.suppress(OSError):
            pump(client, broker, doomed)
        for end in (client, broker):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _requests(self, client: socket.socket, broker: socket.socket, doomed: set[bytes]) -> None:
        held = b""
        while True:
            frame = read_frame(client)
            if int.from_bytes(frame[4:6], "big") == PRODUCE:
                with self._lock:
                    if self._to_lose:
                        self._to_lose -= 1
                        doomed.add(frame[8:12])
                    elif self._to_refuse:
                        self._to_refuse -= 1
                        held += refusal(frame)
                        if not self._is_held:
                            client.sendall(held)
                            held = b""
                        continue
                client.sendall(held)
                held = b""
            broker.sendall(frame)

    def _answers(self, client: socket.socket, broker: socket.socket, doomed: set[bytes]) -> None:
        while True:
            frame = read_frame(broker)
            if frame[4:8] in doomed:  # the correlation id: this one was written, and its client does not learn that
                with self._lock:
                    self.lost += 1
                return
            client.sendall(frame)
