"""Fault rules and recorded traffic of the nodes that a test runs.

`Broker` and `Cluster` have the same methods for them. Rules and traffic survive every stop and start of a node.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from pykbroker.config.typed_config import Config
from pykbroker.dispatch.dispatcher import MakeDispatcher
from pykbroker.testing.clock import Clock
from pykbroker.testing.faults.rule_set import Faults
from pykbroker.testing.groups import HasSessions
from pykbroker.testing.traffic import RecordedRequest, Traffic
from pykbroker.testing.watched_dispatcher import WatchedDispatcher


class Watched(HasSessions, ABC):
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

    @abstractmethod
    def _configs(self) -> Iterable[Config]:
        """Return the configurations of its nodes. Raises RuntimeError before the start."""

    @property
    @abstractmethod
    def clock(self) -> Clock:
        """The time that clients feel."""

    @contextmanager
    def faults_over_http(self, port: int = 0) -> Iterator[str]:
        """Serve the fault rules, the clock and the end of sessions over HTTP while the block runs, for programs that
        are not written in Python.

        Yields the URL at which rules are added, on 127.0.0.1. `port`: 0 takes a free one. All nodes share one set of
        rules, so `times` counts the matches of all nodes together. Rules that are left stay after the block. Raises
        RuntimeError before the start, ConfigError if the nodes have an authorizer, and OSError if the port is taken.
        """
        # The server needs h11, which is imported for it alone.
        from pykbroker.testing.faults_server import FaultsServer, require_servable

        for config in self._configs():
            require_servable(config)
        server = FaultsServer(f"127.0.0.1:{port}", faults=self.faults, clock=self.clock, end_session=self._end_session)
        server.start()
        try:
            yield server.url
        finally:
            server.close()

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
