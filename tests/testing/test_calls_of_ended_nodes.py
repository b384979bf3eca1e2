"""A call to a node of this process fails at once if the node ends before it answers, however it ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pykbroker.metrics.registry import Sample
from pykbroker.node.node import Node
from pykbroker.testing import Broker, Cluster
from pykbroker.testing.node_thread import NodeThread
from testkit.nodes.nodes import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


class Unanswered:
    """Calls that a node takes and never answers."""

    def __init__(self, run: NodeThread[Any]) -> None:
        self._run = run
        #: set when the node has taken the call
        self.taken = threading.Event()

    def read(self) -> None:
        def never(node: Node) -> asyncio.Future[None]:
            self.taken.set()
            return node.broker_loop.create_future()

        self._run.read(never)

    def metrics(self) -> None:
        async def never() -> list[Sample]:
            self.taken.set()
            await asyncio.get_running_loop().create_future()
            return []

        assert self._run.node is not None
        self._run.node.samples = never  # type: ignore[method-assign]
        self._run.metrics()


CALLS = pytest.mark.parametrize("call", [Unanswered.read, Unanswered.metrics])


def restore(broker: Broker) -> None:
    broker.restore(broker.snapshot())


@CALLS
@pytest.mark.parametrize("end", [Broker.stop, Broker.reset, restore])
def test_a_call_fails_when_the_broker_ends(
    pool: ThreadPoolExecutor, call: Callable[[Unanswered], None], end: Callable[[Broker], None]
) -> None:
    with Broker() as broker:
        calls = Unanswered(broker._started)
        waiting = pool.submit(call, calls)
        assert calls.taken.wait(60)
        end(broker)
        with pytest.raises(RuntimeError, match="node 1 has ended before it answered"):
            waiting.result(60)


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    shared.restore()
    return shared


@CALLS
def test_a_call_fails_when_the_node_is_killed(
    pool: ThreadPoolExecutor, cluster: Cluster, call: Callable[[Unanswered], None]
) -> None:
    calls = Unanswered(cluster._running[2])
    waiting = pool.submit(call, calls)
    assert calls.taken.wait(60)
    cluster.kill(2)
    with pytest.raises(RuntimeError, match="node 2 has ended before it answered"):
        waiting.result(60)


def test_a_record_is_sent_again_when_the_leader_that_has_it_is_killed(
    pool: ThreadPoolExecutor, cluster: Cluster
) -> None:
    cluster.create_topic("lost")
    cluster.wait_until_in_sync("lost")
    leader = cluster._image().topics.by_name["lost"].partitions[0].leader
    # Its followers never get the record, so it waits for them.
    cluster.partition_network([leader])
    waiting = pool.submit(cluster.produce, "lost", "one")

    def has_record(node: Node) -> bool:
        partition = node.services.replicas.get("lost", 0)
        assert partition is not None
        return partition.log.log_end_offset == 1

    eventually("the leader has the record", lambda: cluster._running[leader].read(has_record))
    assert not waiting.done()
    cluster.kill(leader)
    assert waiting.result(60).offset == 0
    assert [record.value for record in cluster.records("lost")] == [b"one"]
