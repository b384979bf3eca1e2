"""A proxy in front of a broker that loses the answer to a Produce request and closes the connection: what a client sees
when the network fails at the worst moment. Its broker advertises the proxy's address, so every request passes here."""

from __future__ import annotations

import contextlib
import socket
import threading

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


class FlakyProxy:
    """`lose(n)`: the answers to the next n Produce requests that arrive are lost, each with its connection."""

    def __init__(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._lock = threading.Lock()
        self._to_lose = 0
        self.lost = 0
        threading.Thread(target=self._accept, name="flaky proxy", daemon=True).start()

    def lose(self, count: int) -> None:
        with self._lock:
            self._to_lose, self.lost = count, 0

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
        while True:
            frame = read_frame(client)
            if int.from_bytes(frame[4:6], "big") == PRODUCE:
                with self._lock:
                    if self._to_lose:
                        self._to_lose -= 1
                        doomed.add(frame[8:12])
            broker.sendall(frame)

    def _answers(self, client: socket.socket, broker: socket.socket, doomed: set[bytes]) -> None:
        while True:
            frame = read_frame(broker)
            if frame[4:8] in doomed:  # the correlation id: this one was written and nobody learns of it
                with self._lock:
                    self.lost += 1
                return
            client.sendall(frame)
