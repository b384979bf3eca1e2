"""What a test orders and sees of the nodes that it runs: fault rules and recorded traffic.

Of `Broker` and of `Cluster` alike, and the same over every stop and start of a node.
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
    """Its nodes are made with `_make_dispatcher`."""

    def __init__(self, *, record: bool = False) -> None:
        #: the fault rules; of a cluster those of all nodes
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
        """What clients asked since recording began, the oldest first: of this API (`Produce`), about this topic, from
        this client, to this node. The newest 10,000 requests, or fewer when they have more than 64 MiB together.
        RuntimeError when nothing was ever recorded, FaultError (a ValueError) for an API that there is not."""
        return self._traffic.requests(api, topic=topic, client_id=client_id, node=node)

    @contextmanager
    def recording(self) -> Iterator[Traffic]:
        """Record what clients ask while the block runs; what was recorded before is forgotten."""
        self._traffic.start()
        try:
            yield self._traffic
        finally:
            self._traffic.stop()
