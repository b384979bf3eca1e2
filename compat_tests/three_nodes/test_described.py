"""The output of Apache Kafka's tools for three nodes that all live (versions, offsets, directories, the quorum,
features)."""

from __future__ import annotations

import subprocess
import threading

import pytest

from compat_tests.mixed_cluster.members import Cluster
from compat_tests.three_nodes.clusters import TOOLS, Both, fill
from testkit.oracle.kafka import tool_command

pytestmark = pytest.mark.slow

TOPIC = "described"
THIRD = ("--controller-id", "3", "--controller-directory-id", "AwMDAwMDAwMDAwMDAwMDAw")
SECOND = ("--controller-id", "3", "--controller-directory-id", "AgICAgICAgICAgICAgICAg")


@pytest.fixture(scope="module", autouse=True)
def topic(both: Both) -> None:
    both.create(TOPIC, "1:2:3,2:3:1,3:1:2", "--config", "min.insync.replicas=2")
    both.each(lambda cluster: fill(cluster, TOPIC, 1, 3))


def test_topics(both: Both) -> None:
    described = both.same("TopicCommand", "--describe", "--topic", TOPIC)
    assert "Partition: 1	Leader: 2	Replicas: 2,3,1	Isr: 1,2,3" in described
    both.same("TopicCommand", "--describe", "--topic", TOPIC, "--partition-size-limit-per-response", "2")
    both.same("TopicCommand", "--describe", "--topics-with-overrides", "--topic", TOPIC)
    assert "TopicExistsException" in both.same("TopicCommand", "--create", "--topic", TOPIC)
    refused = both.same("TopicCommand", "--create", "--topic", "four", "--replication-factor", "4")
    assert "InvalidReplicationFactorException" in refused
    both.same("TopicCommand", "--describe", "--topic", "no-such-topic")


def test_a_new_topic_is_spread_over_the_brokers(both: Both) -> None:
    """The placement is random, so only its size is compared."""
    both.same("TopicCommand", "--create", "--topic", "spread", "--partitions", "6", "--replication-factor", "2")

    def spread(cluster: Cluster) -> None:
        cluster.in_sync("spread")
        found = cluster.partitions("spread").values()
        assert sorted(each.replica_nodes[0] for each in found) == [1, 1, 2, 2, 3, 3]
        assert all(len(set(each.replica_nodes)) == 2 for each in found)

    both.each(spread)
    both.same("TopicCommand", "--delete", "--topic", "spread")


def test_versions_of_requests(both: Both) -> None:
    said = both.same("BrokerApiVersionsCommand")
    assert [f"(id: {number} rack: null isFenced: false)" in said for number in (1, 2, 3)] == [True] * 3


@pytest.mark.parametrize("time", ["latest", "earliest", "max-timestamp", "1700000000000", "earliest-local"])
def test_offsets(both: Both, time: str) -> None:
    said = both.same("GetOffsetShell", "--topic-partitions", f"{TOPIC}:0-2,{TOPIC}:2", "--time", time)
    # A partition without records has no record with a timestamp.
    assert said.count(f"{TOPIC}:") == (1 if time in ("max-timestamp", "1700000000000") else 3)
    assert (f"{TOPIC}:1:3" in said) == (time == "latest")


def test_log_dirs(both: Both) -> None:
    described = both.same("LogDirsCommand", "--describe", "--topic-list", TOPIC)
    assert described.count(f'"{TOPIC}-') == 9
    both.same("LogDirsCommand", "--describe", "--topic-list", TOPIC, "--broker-list", "2,3")
    assert "do not exist" in both.same("LogDirsCommand", "--describe", "--broker-list", "2,9")


def test_the_cluster_and_its_nodes(both: Both) -> None:
    to_controllers = "--bootstrap-controller {controllers}"
    both.same("ClusterTool", "cluster-id")
    both.same("ClusterTool", "cluster-id", where=to_controllers)
    for words in ((), ("--include-fenced-brokers",)):
        assert "unfenced" in both.same("ClusterTool", "list-endpoints", *words)
    assert "‹port of controller 3›" in both.same("ClusterTool", "list-endpoints", where=to_controllers)
    assert "not currently registered" in both.same("ClusterTool", "unregister", "--id", "9")


@pytest.mark.parametrize(
    "where", ["--bootstrap-server {bootstrap}", "--bootstrap-controller {controllers}"], ids=["brokers", "controllers"]
)
def test_the_quorum(both: Both, where: str) -> None:
    status = both.same("MetadataQuorumCommand", "describe", "--status", where=where)
    assert "LeaderId:               1" in status
    assert status.count("CONTROLLER://") == 3
    rows = both.same("MetadataQuorumCommand", "describe", "--replication", where=where)
    assert (rows.count("Leader  "), rows.count("Follower")) == (1, 2)
    both.same("MetadataQuorumCommand", "describe", "--replication", "--human-readable", where=where)


def test_voters_are_removed_and_added(both: Both) -> None:
    properties = ("--command-config", "{folder}/3/server.properties")
    assert "VoterNotFoundException" in both.same("MetadataQuorumCommand", "remove-controller", *SECOND)
    both.same("MetadataQuorumCommand", "remove-controller", *THIRD, "--dry-run")
    assert "Removed" in both.same("MetadataQuorumCommand", "remove-controller", *THIRD)
    assert "VoterNotFoundException" in both.same("MetadataQuorumCommand", "remove-controller", *THIRD)
    assert "Observer" in both.same("MetadataQuorumCommand", "describe", "--replication")
    both.same("MetadataQuorumCommand", "describe", "--status")
    both.same("MetadataQuorumCommand", *properties, "add-controller", "--dry-run")
    assert "Added" in both.same("MetadataQuorumCommand", *properties, "add-controller")
    assert "DuplicateVoterException" in both.same("MetadataQuorumCommand", *properties, "add-controller")
    assert "Observer" not in both.same("MetadataQuorumCommand", "describe", "--replication")


def test_features_go_down_and_up(both: Both) -> None:
    def features(verb: str, *words: str, validated: bool = False) -> str:
        named = [word for each in words for word in ("--feature", each)]
        return both.same("FeatureCommand", verb, *named, *(["--dry-run"] if validated else []))

    both.same("FeatureCommand", "describe")
    both.same("FeatureCommand", "version-mapping", "--release-version", "4.0")
    both.same("FeatureCommand", "feature-dependencies", "--feature", "eligible.leader.replicas.version=1")
    assert "was downgraded" in features("downgrade", "transaction.version=1", "group.version=0")
    assert "FinalizedVersionLevel: 0 " in both.same("FeatureCommand", "describe")
    assert "can be upgraded" in features("upgrade", "transaction.version=2", validated=True)
    # Every feature of the release, also the features that pykbroker only stores.
    said = both.same("FeatureCommand", "upgrade", "--release-version", "4.3")
    assert said.count(" was upgraded to ") == 7
    assert "disabled" in both.same("FeatureCommand", "disable", "--feature", "share.version")
    assert "was downgraded" in features("downgrade", "streams.version=0")
    both.same("FeatureCommand", "describe")
    for name, level in (("eligible.leader.replicas.version", 1), ("kraft.version", 1), ("metadata.version", 30)):
        features("upgrade", f"{name}={level}")
    for refused in ("kraft.version=0", "metadata.version=29", "metadata.version=6", "no.such.feature=1"):
        assert "ended with 1" in features("downgrade", refused)
    for refused in ("metadata.version=34", "transaction.version=3", "group.version=2"):
        assert "ended with 1" in features("upgrade", refused)
    assert "ended with 1" in both.same("FeatureCommand", "downgrade", "--release-version", "4.0")
    unsafe = ("downgrade", "--unsafe", "--release-version", "4.0")
    assert "Unsafe" in both.same("FeatureCommand", *unsafe)


def test_features_as_controllers_tell_them(both: Both) -> None:
    """The epoch from a controller is the offset at which a feature changed last. The epoch from a broker is the newest
    offset of the log."""
    to_controllers = "--bootstrap-controller {controllers}"
    both.same("FeatureCommand", "describe", where=to_controllers)
    before = [both.run(cluster, "FeatureCommand", "describe", where=to_controllers).out for cluster in both.clusters]
    both.each(lambda cluster: cluster.create("moves-the-log", (1,)))
    after = [both.run(cluster, "FeatureCommand", "describe", where=to_controllers).out for cluster in both.clusters]
    assert before == after


def test_replicas_are_verified(both: Both) -> None:
    """This tool runs until the test ends it. It compares the records of all replicas, and reports."""
    theirs, ours = map(_verified, both.clusters)
    assert "max lag is 0" in both.equal("ReplicaVerificationTool", theirs, ours)


def _verified(cluster: Cluster) -> str:
    words = ["--broker-list", cluster.bootstrap, "--topics-include", TOPIC, "--time", "-2"]
    words += ["--report-interval-ms", "100"]
    command = tool_command(f"{TOOLS}.ReplicaVerificationTool", words)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        timer = threading.Timer(60, process.kill)
        timer.start()
        lines = []
        for line in process.stdout:
            # Each line begins with the time.
            lines.append(line.partition(": ")[2])
            if "max lag is" in line:
                break
        timer.cancel()
        process.kill()
    return "".join(lines)
