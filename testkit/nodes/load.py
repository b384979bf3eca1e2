"""Clients that write and read replicated topics during a test, and the judge of the responses that they got.

The clients and the judge are those of the torture, and testkit/torture/journal.py has the promises. There,
test_journal.py plants the errors that the judge must find: lost, twice, reordered, an aborted record that is read, two
values at one offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from testkit.nodes.nodes import eventually
from testkit.torture.clients import ANSWER_S, Client, Group, Reader, TransactionalWriter, Window, Writer
from testkit.torture.journal import Journal

C = TypeVar("C", bound=Client)

#: The settings of the producers of each topic. The second may repeat and reorder records when its leader changes, so
#: only its losses are judged.
WRITERS: dict[str, dict[str, Any]] = {
    "once": {"enable.idempotence": True},
    "plain": {"acks": "all", "max.in.flight": 1},
}
#: For clusters with Apache Kafka's nodes, which are slower: only the idempotent one.
ONCE = {"once": WRITERS["once"]}
#: A request to a silent broker times out, and is sent again to it or another.
_GIVES_UP = {"socket.timeout.ms": 4_000}
#: The responses that a writer must get before it counts as continuing.
_SOME = 10
#: The pause of a writer between two bursts while a test waits for it.
_SHORT_PAUSE_S = 0.02


class Clustered(Protocol):
    """A cluster, as far as clients need it."""

    @property
    def bootstrap(self) -> str: ...


class Load:
    """A writer of each kind (an idempotent and a plain one) and a reader of each topic (one partition), during the
    block."""

    def __init__(
        self,
        nodes: Clustered,
        topics: Sequence[str],
        writers: Mapping[str, Mapping[str, Any]] = WRITERS,
        *,
        pause_s: float = 0.2,
    ) -> None:
        """`pause_s`: the pause of a writer between two bursts. Most of a test is waiting for nodes, and whatever is
        written in that time costs the nodes and the judge more than it proves."""
        self.nodes = nodes
        self._pause_s = pause_s
        self.journals: dict[str, Journal] = {}
        self.clients: list[Client] = []
        for topic in topics:
            self.write(topic, writers)

    def write(self, topic: str, writers: Mapping[str, Mapping[str, Any]]) -> None:
        """Add a writer with each of these settings, and a reader."""
        journal = self.journals[topic] = Journal(topic)
        for name, settings in writers.items():
            bootstrap, pause_s = self.nodes.bootstrap, self._pause_s
            settings = {**_GIVES_UP, **settings}
            writer = Writer(
                f"{topic}-{name}",
                bootstrap,
                journal,
                topic,
                settings=settings,
                pause_s=pause_s,
                says_its_requests=False,
            )
            self._add(writer)
        self._add(Reader(self.nodes.bootstrap, journal, topic))

    def transact(
        self, transactional_id: str, topic: str, settings: Mapping[str, Any] | None = None
    ) -> TransactionalWriter:
        """Commit and abort in turn into another topic, with a reader of the committed records."""
        journal = self.journals[topic] = Journal(topic, transactional=True)
        self._add(Reader(self.nodes.bootstrap, journal, topic, committed=True))
        writer = TransactionalWriter(
            transactional_id, self.nodes.bootstrap, journal, topic, settings=settings, pause_s=self._pause_s
        )
        return self._add(writer)

    def consume(self, group: str, topic: str, settings: Mapping[str, str | None] | None = None) -> Group:
        """Read and commit as the only member of a group."""
        return self._add(Group(self.nodes.bootstrap, topic, group, settings))

    def _add(self, client: C) -> C:
        self.clients.append(client)
        return client

    def __enter__(self) -> Self:
        for client in self.clients:
            client.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self.clients:
            client.ask_to_stop()

    # -- during the run

    def until(self, what: str, look: Callable[[], bool]) -> None:
        """Wait for an event, and fail if a client fails."""

        def watched() -> bool:
            for client in self.clients:
                client.check()
            return look()

        eventually(what, watched)

    def goes_on(self) -> None:
        """Wait until every writer of records got more responses, and every group and transaction committed."""
        wanted = {
            client: progress_of(client) + _step(client) for client in self.clients if not isinstance(client, Reader)
        }
        waiting = set(wanted)

        def look() -> bool:
            went_on = [client for client in waiting if progress_of(client) >= wanted[client]]
            waiting.difference_update(went_on)
            _pause(went_on, self._pause_s)
            return not waiting

        _pause(waiting, _SHORT_PAUSE_S)
        try:
            self.until("every client goes on", look)
        except AssertionError as error:
            error.add_note(f"these do not: {sorted(client.name for client in waiting)}")
            raise
        finally:
            _pause(self.clients, self._pause_s)

    # -- after the run

    def judge(self) -> None:
        """Wait for the clients' end, read every topic from its beginning, and judge the records."""
        for client in self.clients:
            client.ask_to_stop()
        for client in self.clients:
            client.join(ANSWER_S)
            assert not client.is_alive(), f"{client.name} does not end"
            client.check()
        for topic, journal in self.journals.items():
            window = Window(self.nodes.bootstrap, committed=journal.transactional)
            try:
                start, end = window.bounds(topic)
                found = window.read(topic, start, end)
            finally:
                window.close()
            assert start == 0
            assert found
            journal.judge(found, start, end)


def _pause(clients: Iterable[Client], seconds: float) -> None:
    """Let the writers among these clients rest for this time between two bursts."""
    for client in clients:
        if isinstance(client, Writer):
            client.pause_s = seconds


def progress_of(client: Client) -> int:
    if isinstance(client, Group):
        return client.committed
    if isinstance(client, TransactionalWriter):
        # Aborted transactions return no records, and the judge wants to find records.
        return sum(transaction.outcome is True for transaction in list(client.done))
    assert isinstance(client, Writer)
    return client.progress


def _step(client: Client) -> int:
    return 1 if isinstance(client, Group | TransactionalWriter) else _SOME
