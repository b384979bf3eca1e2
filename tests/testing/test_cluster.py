"""A cluster inside this process: nodes start, end, pause and are cut off from each other, and clients lose nothing."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import TypeVar

import aiokafka
import kafka
import pytest

from pykbroker.config.kinds import ConfigError
from pykbroker.testing import CLIENTS, Cluster, SecureCluster
from pykbroker.testing.killable import KillableRuntime
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from testkit.nodes.load import Load
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import Wire, batch
from testkit.standing_still import loop_standing_still

pytestmark = pytest.mark.slow

T = TypeVar("T")
#: A client with short timeouts, which notices early that a node does not answer.
WRITERS = {"once": {"enable.idempotence": True, "socket.timeout.ms": 2_000, "request.timeout.ms": 2_000}}


class Clients:
    """The attributes of a cluster that `Load` needs."""

    def __init__(self, cluster: Cluster) -> None:
        self.bootstrap = cluster.bootstrap_servers


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    shared.restore()
    return shared


def create(cluster: Cluster, name: str) -> str:
    """Create a topic of one partition, with the replicas and the min.insync.replicas of the profile."""
    with Wire(cluster.address(1)) as wire:
        wire.create(name, -1, -1)
    cluster.wait_until_in_sync(name)
    return name


def leader_of(cluster: Cluster, topic: str) -> int:
    leader = cluster.leader(topic)
    assert leader is not None
    return leader


def holds(cluster: Cluster, topic: str, values: list[bytes]) -> None:
    """Wait until the leader returns these values, each perhaps more than once, because its high watermark may still
    advance."""

    def look() -> bool:
        leader = cluster.leader(topic)
        if leader is None:
            return False
        with Wire(cluster.address(leader)) as wire:
            return list(dict.fromkeys(wire.values(topic))) == values

    eventually(f"{topic} holds {values}", look)


def another_leader(cluster: Cluster, topic: str, but: int) -> int:
    def look() -> int | None:
        leader = cluster.leader(topic)
        return leader if leader != but else None

    return eventually(f"another node than {but} leads {topic}", look)


def test_every_node_is_a_member() -> None:
    with Cluster(nodes=3, config={"num.partitions": 3}) as cluster:
        assert cluster.nodes == cluster.running == (1, 2, 3)
        assert len(cluster.bootstrap_servers.split(",")) == 3
        assert cluster.controller() in cluster.nodes
        for number in cluster.nodes:
            with Wire(cluster.address(number)) as wire:
                assert {broker.node_id for broker in wire.metadata().brokers} == {1, 2, 3}
            assert Path(cluster.data_dir(number), "meta.properties").exists()
            assert "kafka.server:type=ReplicaManager,name=PartitionCount" in cluster.metrics(number)
        with Wire(cluster.address(2)) as wire:
            created = wire.try_create("t", -1, -1, {})
            assert (created.num_partitions, created.replication_factor) == (3, 3)


def disturb_by_killing(cluster: Cluster, leader: int) -> None:
    cluster.kill(leader)
    assert leader not in cluster.running


def disturb_by_stopping(cluster: Cluster, leader: int) -> None:
    cluster.stop(leader)
    assert leader not in cluster.running


def disturb_by_pausing(cluster: Cluster, leader: int) -> None:
    cluster.pause(leader)
    assert cluster.paused == (leader,)


def disturb_by_isolating(cluster: Cluster, leader: int) -> None:
    cluster.partition_network([leader], [CLIENTS, *(number for number in cluster.nodes if number != leader)])


@pytest.mark.parametrize(
    ("disturb", "victim"),
    [
        (disturb_by_killing, "a broker"),
        (disturb_by_killing, "the active controller"),
        (disturb_by_stopping, "the active controller"),
        (disturb_by_pausing, "a broker"),
        (disturb_by_isolating, "the active controller"),
    ],
)
def test_nothing_acknowledged_is_lost(cluster: Cluster, disturb: Callable[[Cluster, int], None], victim: str) -> None:
    name = f"{disturb.__name__}-{victim.replace(' ', '-')}"
    active = cluster.controller()
    topics = map(create, repeat(cluster), (f"{name}-{n}" for n in range(60)))
    # Replicas are placed by chance.
    topic, leader = next(
        (topic, leader)
        for topic, leader in ((topic, leader_of(cluster, topic)) for topic in topics)
        if (leader == active) == (victim == "the active controller")
    )
    with Load(Clients(cluster), [topic], WRITERS) as load:
        load.goes_on()
        disturb(cluster, leader)
        another_leader(cluster, topic, but=leader)
        load.goes_on()
        cluster.restore()
        assert set(cluster.in_sync_replicas(topic)) == {1, 2, 3}
        load.goes_on()
    load.judge()


def test_an_isolated_leader_acknowledges_nothing(cluster: Cluster) -> None:
    """It is cut off from the others and from the controllers; clients still reach it."""
    topic = create(cluster, "isolated")
    leader = leader_of(cluster, topic)
    cluster.partition_network([leader], [number for number in cluster.nodes if number != leader])
    with Wire(cluster.address(leader)) as wire:
        data = PartitionProduceData(index=0, records=batch(b"lost"))
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=300,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        assert wire.call(request, 12).responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    follower = another_leader(cluster, topic, but=leader)
    with Wire(cluster.address(follower)) as wire:
        assert wire.produce(topic, batch(b"kept")).error_code == ErrorCode.NONE
    cluster.heal()
    cluster.wait_until_in_sync(topic)
    holds(cluster, topic, [b"kept"])


def test_half_of_the_nodes_cannot_commit_and_both_halves_agree_again(cluster: Cluster) -> None:
    """Traffic of controllers is cut as well, so no group of one has a quorum."""
    active = cluster.controller()
    cluster.partition_network([1], [2], [3])
    eventually("no controller is active any more", lambda: cluster.controller() is None)
    cluster.heal()
    eventually("a controller is active", lambda: cluster.controller() is not None)
    assert active is not None
    cluster.restore()


@pytest.mark.parametrize("disturb", [Cluster.heal, Cluster.pause])
def test_a_disturbance_does_not_wait_for_ever_for_a_loop_that_is_stuck(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, disturb: Callable[[Cluster], None]
) -> None:
    monkeypatch.setattr("pykbroker.testing.node_thread.STUCK_SECONDS", 0.2)
    with loop_standing_still(cluster._running.node(2).broker_loop), pytest.raises(TimeoutError, match="node 2 has not"):
        disturb(cluster)
    assert 2 not in cluster.paused


def test_what_goes_wrong_on_a_loop_is_raised_by_the_disturbance(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: KillableRuntime) -> None:
        raise RuntimeError("no link")

    monkeypatch.setattr(KillableRuntime, "network_changed", fail)
    with pytest.raises(RuntimeError, match="no link"):
        cluster.heal()


def test_a_paused_node_does_nothing_and_refuses_nothing(cluster: Cluster) -> None:
    cluster.pause(2)
    with socket.create_connection(("127.0.0.1", int(cluster.address(2).rpartition(":")[2])), timeout=0.3) as sock:
        # ApiVersions in version 0.
        sock.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))
        with pytest.raises(TimeoutError):
            sock.recv(1)
        cluster.resume(2)
        sock.settimeout(30)
        assert sock.recv(4)
    assert cluster.paused == ()


def test_what_a_paused_node_was_sent_is_lost_when_it_is_killed(cluster: Cluster) -> None:
    topic = create(cluster, "unread")
    leader = leader_of(cluster, topic)
    log = Path(cluster.data_dir(leader), f"{topic}-0", f"{0:020}.log")
    with Wire(cluster.address(leader)) as wire:
        assert wire.produce(topic, batch(b"before")).error_code == ErrorCode.NONE
        size = log.stat().st_size
        cluster.pause(leader)
        wire.socket.settimeout(0.3)
        with pytest.raises(OSError):
            wire.produce(topic, batch(b"never read"), acks=1)
        cluster.kill(leader)
    assert log.stat().st_size == size


@pytest.mark.parametrize("stuck", ["broker", "control"])
@pytest.mark.parametrize("disturb", [Cluster.kill, Cluster.pause, Cluster.stop, Cluster.partition_network])
def test_a_disturbance_returns_when_both_loops_have_followed_although_one_is_stuck(
    cluster: Cluster, disturb: Callable[..., None], stuck: str
) -> None:
    node = cluster._running.node(2)
    others = [[2], [CLIENTS, 1, 3]] if disturb is Cluster.partition_network else [2]
    with Wire(cluster.address(2), timeout=30) as wire:
        wire.metadata()
        with loop_standing_still(node.broker_loop if stuck == "broker" else node.runtime.loop):
            disturbs = threading.Thread(target=disturb, args=(cluster, *others), daemon=True)
            disturbs.start()
            if disturb is Cluster.kill:
                # Its clients see at once that it has ended.
                assert wire.closed_by_the_broker()
            disturbs.join(0.3)
            assert disturbs.is_alive()
        disturbs.join(60)
        assert not disturbs.is_alive()
    if disturb is Cluster.pause:
        assert cluster.paused == (2,)
    elif disturb is not Cluster.partition_network:
        assert 2 not in cluster.running
        with pytest.raises(ConnectionRefusedError):
            Wire(cluster.address(2))


def test_connections_come_and_go(cluster: Cluster) -> None:
    """More connections than a node keeps before it removes those that have ended."""
    for _ in range(200):
        with Wire(cluster.address(1)) as wire:
            assert len(wire.metadata().brokers) == 3


def test_a_killed_node_is_gone_at_once(cluster: Cluster) -> None:
    host, _, port = cluster.address(3).rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as sock:
        cluster.kill(3)
        # It ends, or is reset if the node had not accepted it yet.
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(1) == b""
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=30)
    clean = Path(cluster.data_dir(3), ".kafka_cleanshutdown")
    assert not clean.exists()
    cluster.start(3)
    # Now every log has been recovered.
    cluster.wait_until_in_sync()
    cluster.stop(3)
    assert clean.exists()


def test_all_nodes_may_be_killed_and_started_again(cluster: Cluster) -> None:
    topic = create(cluster, "again")
    with Wire(cluster.address(leader_of(cluster, topic))) as wire:
        assert wire.produce(topic, batch(b"kept")).error_code == ErrorCode.NONE
    before = cluster.bootstrap_servers
    cluster.kill()
    assert cluster.running == ()
    assert cluster.leader(topic) is None
    with pytest.raises(RuntimeError, match="node 1 is not running"):
        cluster.metrics(1)
    cluster.start()
    assert cluster.bootstrap_servers == before
    holds(cluster, topic, [b"kept"])


def test_a_node_that_finds_no_quorum_goes_on_with_its_start(cluster: Cluster) -> None:
    cluster.kill()
    with pytest.raises(TimeoutError, match="node 1 does not serve clients"):
        cluster.start(1, timeout_seconds=0.5)
    assert cluster.running == (1,)
    cluster.start(2)
    eventually(
        "node 1 serves", lambda: "name=PartitionCount" in str(cluster.metrics(1)) if serves(cluster, 1) else None
    )
    cluster.stop(1)
    cluster.restore()


def serves(cluster: Cluster, number: int) -> bool:
    try:
        cluster.metrics(number)
    except RuntimeError:
        return False
    return True


def test_the_end_of_a_start_that_finds_no_quorum(cluster: Cluster) -> None:
    cluster.kill()
    with pytest.raises(TimeoutError):
        cluster.start(1, timeout_seconds=0)
    cluster.stop(1)
    assert cluster.running == ()


def test_kafka_python_goes_on_when_its_leader_and_its_coordinator_die(cluster: Cluster) -> None:
    topic = create(cluster, "kafka-python")
    producer = kafka.KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, acks="all", delivery_timeout_ms=60_000, request_timeout_ms=5_000
    )
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="kafka-python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
    )
    try:
        producer.send(topic, b"before").get(60)
        assert next(consumer).value == b"before"
        cluster.kill(leader_of(cluster, topic))
        producer.send(topic, b"after").get(60)
        assert next(consumer).value == b"after"
    finally:
        consumer.close()
        producer.close()


def test_aiokafka_goes_on_when_its_leader_stands_still(cluster: Cluster) -> None:
    topic = create(cluster, "aiokafka")

    async def main() -> None:
        servers = cluster.bootstrap_servers
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, acks="all", request_timeout_ms=3_000)
        await producer.start()
        try:
            await producer.send_and_wait(topic, b"before")
            await asyncio.to_thread(cluster.pause, leader_of(cluster, topic))
            await asyncio.wait_for(send(producer, topic, b"after"), 60)
        finally:
            await asyncio.to_thread(cluster.resume)
            await producer.stop()

    asyncio.run(main())
    cluster.restore()
    # A request that was given up may have been appended.
    holds(cluster, topic, [b"before", b"after"])


async def send(producer: aiokafka.AIOKafkaProducer, topic: str, value: bytes) -> None:
    """aiokafka gives a request up after `request_timeout_ms`, and raises an error."""
    while True:
        try:
            await producer.send_and_wait(topic, value)
            return
        except aiokafka.errors.KafkaError:
            await asyncio.sleep(0.1)


def test_async_with() -> None:
    async def main() -> int:
        async with Cluster(nodes=1) as cluster:
            _, writer = await asyncio.open_connection("127.0.0.1", int(cluster.address(1).rpartition(":")[2]))
            writer.close()
        return len(cluster.running)

    assert asyncio.run(main()) == 0


def test_temporary_data_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Cluster(nodes=1):
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_a_node_that_gives_up_is_a_failure_of_the_block() -> None:
    def use(cluster: Cluster) -> None:
        with cluster:
            node = cluster._running.node(2)
            node.runtime.loop.call_soon_threadsafe(node._fail, OSError("the disk is gone"))
            eventually("node 2 has ended", lambda: cluster.running == (1, 3))

    with pytest.raises(RuntimeError, match="a node stopped by itself: the disk is gone"):
        use(Cluster())


def test_properties() -> None:
    with pytest.raises(ConfigError, match="listeners is decided by the cluster"):
        Cluster(config={"listeners": "PLAINTEXT://:9092"})
    with pytest.raises(ValueError, match="there is no node 4"):
        Cluster(node_config={4: {"broker.rack": "a"}})
    with pytest.raises(ValueError, match="a cluster of 0 nodes"):
        Cluster(nodes=0)
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        Cluster(config={"num.partitions": "many"}).start()
    with Cluster(nodes=2, node_config={2: {"broker.rack": "b"}}) as cluster, Wire(cluster.address(1)) as wire:
        assert {broker.node_id: broker.rack for broker in wire.metadata().brokers} == {1: None, 2: "b"}
        with pytest.raises(ValueError, match="there is no node 3"):
            cluster.kill(3)
        with pytest.raises(ValueError, match="node 1 is in two groups"):
            cluster.partition_network([1], [1, 2])
        with pytest.raises(TimeoutError, match="there is no topic t"):
            cluster.wait_until_in_sync("t", timeout_seconds=0)


@pytest.mark.parametrize(("release", "share_version"), [("4.3", 1), (None, 2), ("4.4", 2)])
def test_a_cluster_begins_at_the_levels_of_a_release(release: str | None, share_version: int) -> None:
    with Cluster(nodes=2, release=release) as cluster, Wire(cluster.address(2)) as wire:
        answer = wire.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"))
        levels = {one.name: one.max_version_level for one in answer.finalized_features}
    assert (levels["share.version"], levels["kraft.version"]) == (share_version, 1)


def test_an_unknown_release_is_refused() -> None:
    for make in (Cluster, SecureCluster):
        with pytest.raises(ConfigError, match=r"9\.9"):
            make(release="9.9")


def test_the_old_words_work_and_warn() -> None:
    with pytest.warns(DeprecationWarning, match="properties is config now"):
        old = Cluster(nodes=1, properties={"num.partitions": 7})
    with pytest.warns(DeprecationWarning, match="node_properties is node_config now") as warned:
        Cluster(nodes=1, node_properties={1: {"broker.rack": "a"}})
    assert warned[0].filename == __file__
    with pytest.raises(TypeError, match="config and properties are the same argument"):
        Cluster(nodes=1, config={"num.partitions": 7}, properties={"num.partitions": 7})
    with old:
        old.create_topic("t", -1)
        assert old.topics() == {"t": 7}
        with pytest.warns(DeprecationWarning, match=r"Cluster\.close is Cluster\.stop now") as warned:
            old.close()
        assert warned[0].filename == __file__
        assert old.running == ()


def test_the_end_of_a_cluster_and_its_beginning_anew() -> None:
    cluster = Cluster(nodes=1)
    cluster.stop()
    cluster.start()
    cluster.create_topic("kept", config={"min.insync.replicas": 1})
    cluster.stop(*cluster.nodes)
    cluster.start()
    assert cluster.topics() == {"kept": 1}
    cluster.pause()
    cluster.stop()
    cluster.stop()
    with pytest.raises(RuntimeError, match="the cluster is not running"):
        cluster.data_dir(1)
    with cluster:
        assert cluster.topics() == {}
