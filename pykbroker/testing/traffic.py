"""Requests of clients as a node received them, with its answers: `broker.requests(api="Produce")`.

It keeps the newest MOST_REQUESTS requests, or fewer if these have more than MOST_BYTES together. It records only
between `start` and `stop`. Requests between brokers are not recorded.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from pykbroker.testing.faults.fault_rule import api_key
from pykbroker_wire.apis import APIS
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.primitives import TopLevel

MOST_REQUESTS = 10_000
MOST_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class RecordedRequest:
    """A request.

    `api`: the name of the API; `version`: its version. `node`: the id of the broker that received the request.
    `topics`: the names of the topics in it. `request`: the decoded message of `pykbroker_wire.messages`. `arrival_ms`:
    milliseconds since 1970. `errors`: the errors in the answer, without NONE; None while there is no answer. `took_ms`:
    the time until the answer. `bytes`: the size of the frame.
    """

    api: str
    version: int
    client_id: str | None
    node: int
    topics: tuple[str, ...]
    request: TopLevel
    arrival_ms: int
    bytes: int
    errors: tuple[ErrorCode | int, ...] | None = field(default=None)
    took_ms: int | None = field(default=None)


class Traffic:
    """The recorded requests of a broker, or of all nodes of a cluster."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ring: deque[RecordedRequest] = deque()
        self._bytes = 0
        #: nodes read it without the lock
        self.is_recording = False
        self._was_started = False

    def start(self) -> None:
        """Remove the requests that were recorded earlier, and record."""
        with self._lock:
            self._ring.clear()
            self._bytes = 0
            self.is_recording = self._was_started = True

    def stop(self) -> None:
        """Stop recording; recorded requests stay."""
        self.is_recording = False

    def add(self, request: RecordedRequest) -> None:
        """Add a request; nodes call it when one arrives."""
        with self._lock:
            self._ring.append(request)
            self._bytes += request.bytes
            while len(self._ring) > MOST_REQUESTS or (self._bytes > MOST_BYTES and len(self._ring) > 1):
                self._bytes -= self._ring.popleft().bytes

    def requests(
        self,
        api: str | int | None = None,
        *,
        topic: str | None = None,
        client_id: str | None = None,
        node: int | None = None,
    ) -> Sequence[RecordedRequest]:
        """Return the recorded requests that match, the oldest first. Raises RuntimeError if nothing was ever recorded,
        and FaultError for an unknown API."""
        name = None if api is None else APIS[api_key(api)].name
        with self._lock:
            if not self._was_started:
                raise RuntimeError("no traffic is recorded: ask for it by record=True or `with broker.recording():`")
            found = list(self._ring)
        return [
            one
            for one in found
            if (name is None or one.api == name)
            and (topic is None or topic in one.topics)
            and (client_id is None or one.client_id == client_id)
            and (node is None or one.node == node)
        ]
