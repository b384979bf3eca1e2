"""Fault rules and recorded traffic of the nodes that a test runs.

`Broker` and `Cluster` have the same methods for them. Rules and traffic survive every stop and start of a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from pykbroker.dispatch.dispatcher import MakeDispatcher
from pykbroker.testing.faults.rule_set import Faults
from pykbroker.testing.traffic import RecordedRequest, Traffic
from pykbroker.testing.watched_dispatcher import WatchedDispatcher


class Watched:
    """The fault rules and recorded requests of a broker or cluster. Subclasses make its nodes with
    `_make_dispatcher`."""

    def __init__(self, *, record: bool = False) -> None:
        #: the fault rules; in a cluster they apply to all nodes
        self.faults = Faults()
        self._traffic = Traffic()
        if record:
            self._traffic.start()

    @property
    def _make_dispatcher(self) -> MakeDispatcher:
        return partial(WatchedDispatcher, faults=self.faults, traffic=self._traffic)

    def requests(
        self,
        api: str | int | None = None,
        *,
        topic: str | None = None,
        client_id: str | None = None,
        node: int | None = None,
    ) -> Sequence[RecordedRequest]:
        """Return the requests of clients since recording began, the oldest first. The arguments choose requests of an
        API (`Produce`), about a topic, from a client, or to a node. The newest 10,000 requests are kept, or fewer if
        they have more than 64 MiB together. Raises RuntimeError if recording was never on, and FaultError (a
        ValueError) for an unknown API."""
        return self._traffic.requests(api, topic=topic, client_id=client_id, node=node)

    @contextmanager
    def recording(self) -> Iterator[Traffic]:
        """Record the requests of clients while the block runs; requests that were recorded earlier are removed."""
        self._traffic.start()
        try:
            yield self._traffic
        finally:
            self._traffic.stop()
