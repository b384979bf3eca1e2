"""Three nodes of Apache Kafka and three nodes under test, and tools that are run against both clusters."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from compat_tests.differential.compare import Script, compare, run
from compat_tests.differential.nodes import NOT_SERVED, RELEASE, Side
from compat_tests.differential.session import NOW_MS
from compat_tests.mixed_cluster.members import Cluster, Kind, Member
from compat_tests.three_nodes.printed import compared, with_symbols
from compat_tests.tool_server import Ended, ToolServer
from pykbroker_wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import Wire, batch
from testkit.oracle.kafka import NEWEST

TOOLS = "org.apache.kafka.tools"
NUMBERS = (1, 2, 3)
SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.consumer.assignment.interval.ms": "0",
    "auto.leader.rebalance.enable": "false",
    # Write a snapshot of the metadata soon after each change.
    "metadata.log.max.snapshot.interval.ms": "4000",
}
#: The internal topics, as brokers create them.
INTERNAL = {
    "__consumer_offsets": {"cleanup.policy": "compact", "segment.bytes": "104857600", "compression.type": "producer"},
    "__transaction_state": {
        "cleanup.policy": "compact",
        "segment.bytes": "104857600",
        "compression.type": "uncompressed",
        "unclean.leader.election.enable": "false",
        "min.insync.replicas": "2",
    },
}
#: Node 1 becomes the active controller of either cluster, because the other nodes wait longer for a leader.
OWN = {number: {"controller.quorum.election.timeout.ms": "8000"} for number in (2, 3)}


class Both:
    """Two clusters, `theirs` and `ours`, on which the same happens."""

    def __init__(self, theirs: Cluster, ours: Cluster, tools: ToolServer) -> None:
        self.theirs, self.ours = theirs, ours
        self._tools = tools

    @property
    def clusters(self) -> tuple[Cluster, Cluster]:
        return self.theirs, self.ours

    def each(self, do: Callable[[Cluster], object]) -> None:
        """Do the same to both clusters, at once."""
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(do, self.clusters))

    def same(self, main: str, *words: str, where: str = "--bootstrap-server {bootstrap}") -> str:
        """Run a tool against both clusters and compare what it prints. Return what is compared.

        In `words`, `{folder}` is the folder of the cluster, and addresses are those of `where`: `{bootstrap}`, or
        `{controllers}`.
        """
        printed = [self._printed(cluster, main, words, where) for cluster in self.clusters]
        return self.equal(main, *printed)

    def create(self, topic: str, replicas: str, *words: str) -> None:
        """Create a topic and wait until each replica is there and in sync. `replicas` has the form of kafka-topics."""
        self.same("TopicCommand", "--create", "--topic", topic, "--replica-assignment", replicas, *words)
        self.each(lambda cluster: _all_there(cluster, topic))

    def equal(self, what: str, theirs: str, ours: str) -> str:
        """Compare two texts that `compared` has made."""
        one, other = with_symbols(theirs, ours)
        lines = difflib.unified_diff(
            one.splitlines(), other.splitlines(), "Apache Kafka", "pykbroker", n=3, lineterm=""
        )
        assert one == other, "\n".join([what, *lines])
        return one

    def same_answers(self, script: Script) -> None:
        """Run a script of the differential test against both clusters, and compare the decoded answers field by
        field."""
        theirs, ours = (run(script, side(cluster)) for cluster in self.clusters)
        found = compare(theirs, ours)
        assert not found, "\n".join(found)

    def run(self, cluster: Cluster, main: str, *words: str, where: str = "--bootstrap-server {bootstrap}") -> Ended:
        filled = [self._filled(cluster, word) for word in words]
        to = [self._filled(cluster, word) for word in where.split()]
        # This tool expects its verb first; the other tools with a verb expect it last.
        ordered = [*filled, *to] if main == "ClusterTool" else [*to, *filled]
        return self._tools.run(main if main.startswith("org.") else f"{TOOLS}.{main}", ordered)

    def _printed(self, cluster: Cluster, main: str, words: tuple[str, ...], where: str) -> str:
        return compared(main, self.run(cluster, main, *words, where=where), texts(cluster))

    @staticmethod
    def _filled(cluster: Cluster, word: str) -> str:
        controllers = ",".join(map(cluster.controller_address, cluster.controllers))
        for name, value in (
            ("{bootstrap}", cluster.bootstrap),
            ("{controllers}", controllers),
            ("{folder}", str(cluster.folder)),
        ):
            word = word.replace(name, value)
        return word


def texts(cluster: Cluster) -> dict[str, str]:
    """Return the addresses, ports and folders of a cluster, with the names that they get in comparisons."""
    found = {str(cluster.folder): "‹folder›"}
    for number in cluster.members:
        for kind, address in (("broker", cluster.address(number)), ("controller", cluster.controller_address(number))):
            found[address] = f"‹{kind} {number}›"
            found[address.rpartition(":")[2]] = f"‹port of {kind} {number}›"
    return found


def fill(cluster: Cluster, topic: str, partition: int, count: int, size: int = 100) -> None:
    """Write records of `size` bytes, one in each batch."""
    with Wire(cluster.address(cluster.leaders(topic)[partition])) as wire:
        for _ in range(count):
            answer = wire.produce(topic, batch(b"x" * size, timestamp=NOW_MS), partition=partition)
            assert not answer.error_code, answer


def _all_there(cluster: Cluster, topic: str) -> None:
    cluster.in_sync(topic)
    for index, partition in cluster.partitions(topic).items():
        for number in partition.replica_nodes:
            folder = cluster.data(number) / f"{topic}-{index}"
            eventually(f"broker {number} has {topic}-{index}", folder.is_dir)


def side(cluster: Cluster) -> Side:
    """Return a cluster as a script of the differential test sees it, with a link for each node, and node 1 for all
    others."""
    nodes = {f"node {number}": cluster.address(number) for number in cluster.numbers}
    return Side(cluster.members[1].kind, cluster.address(1), texts(cluster), nodes=nodes)


@contextmanager
def started(kind: Kind) -> Iterator[Both]:
    """Start both clusters. Their brokers serve, and the active controller of each is node 1."""
    with ExitStack() as stack:
        theirs, ours = stack.enter_context(_cluster("kafka")), stack.enter_context(_cluster(kind))
        # The JVM of the tools starts at the same time.
        tools = stack.enter_context(ToolServer())
        for cluster in (theirs, ours):
            cluster.ready(*NUMBERS)
            cluster.serving(*NUMBERS)
            _led_by_the_first(cluster)
            _with_internal_topics(cluster)
        yield Both(theirs, ours, tools)


def _cluster(kind: Kind) -> Cluster:
    members = {number: Member(kind) for number in NUMBERS}
    cluster = Cluster(members, settings=SETTINGS, own=OWN, directories=1, kafka=NEWEST)
    levels = [word for name, level in NOT_SERVED.items() for word in ("--feature", f"{name}={level}")]
    cluster.format("--release-version", RELEASE, *levels)
    cluster.launch(*NUMBERS)
    return cluster


def _with_internal_topics(cluster: Cluster) -> None:
    """Create the internal topics; partition 0 of each coordinates on node 1, partition 1 on node 2.

    A broker would place the partitions at random.
    """
    with Wire(cluster.address(1)) as wire:
        for name, configs in INTERNAL.items():
            topic = CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=[index + 1, index + 2, 3 - 2 * index])
                    for index in range(2)
                ],
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
            answer = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics[0]
            assert not answer.error_code, answer
    cluster.in_sync(*INTERNAL)


def _led_by_the_first(cluster: Cluster) -> None:
    while (active := cluster.active()) != 1:
        cluster.stop(active)
        cluster.start(active)
        cluster.serving(*NUMBERS)
