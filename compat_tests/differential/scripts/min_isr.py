"""min.insync.replicas above the number of replicas, for the whole broker and per topic: the node has one broker, and
every partition, also of the coordinators' topics, has one replica."""

from __future__ import annotations

from compat_tests.differential.scripts import produce, requests
from compat_tests.differential.scripts.asking import (
    add_offsets,
    batch,
    commit_offsets,
    end,
    producer,
    until_added,
    until_coordinator,
    until_state,
    until_written,
)
from compat_tests.differential.scripts.consumers import Member, assignable
from compat_tests.differential.scripts.migration import NAMING, assignment, subscription
from compat_tests.differential.session import Session
from compat_tests.differential.stored import OFFSETS, TRANSACTIONS, Stored
from pykbroker_wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pykbroker_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pykbroker_wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

KEY = "min.insync.replicas"
TOPIC, BROKER = 2, 4


def _describe(s: Session, label: str, resource_type: int, name: str) -> None:
    resource = DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=[KEY])
    s.call(label, DescribeConfigsRequest(resources=[resource], include_synonyms=True))


def _set(s: Session, label: str, resource_type: int, name: str, value: str | None) -> None:
    config = AlterableConfig(name=KEY, config_operation=0 if value is not None else 1, value=value)
    resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=[config])
    s.call(label, IncrementalAlterConfigsRequest(resources=[resource]))
    s.until_published()


def _produce(s: Session, label: str, topic: str) -> None:
    topic_id = s.topic_id(topic)
    for acks in (-1, 1):
        s.call(f"{label}: acks {acks}", produce.ask(topic, topic_id, [(0, produce.good())], acks=acks))
    s.call(f"{label}: a topic", DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)]))


def min_isr_of_a_broker(s: Session) -> None:
    """min.insync.replicas=2 in server.properties, and changed as it runs: a broker alone takes acks=all."""
    topic = s.make_topic()
    _describe(s, "a topic's", TOPIC, topic)
    _describe(s, "the broker's", BROKER, "1")
    _produce(s, "from the file", topic)
    for value in ("3", "1", "2147483647", "0", None):
        _set(s, f"for all brokers: {value}", BROKER, "", value)
        _produce(s, f"for all brokers: {value}", topic)
        _describe(s, f"for all brokers: {value}: a topic's", TOPIC, topic)
    partition = DeleteRecordsPartition(partition_index=0, offset=1)
    asked = DeleteRecordsTopic(name=topic, partitions=[partition])
    s.call("delete records", DeleteRecordsRequest(topics=[asked], timeout_ms=10_000))


def min_isr_of_a_topic(s: Session) -> None:
    """min.insync.replicas above the replicas of a topic: at its creation, raised, lowered, taken away."""
    topic = s.make_topic(min_insync_replicas="3")
    _produce(s, "created with 3", topic)
    for value in ("2", "100", "1", "0", None):
        _set(s, f"set to {value}", TOPIC, topic, value)
        _produce(s, f"set to {value}", topic)
        _describe(s, f"set to {value}", TOPIC, topic)


def min_isr_of_transactions(s: Session) -> None:
    """Transactions and their records where every partition asks for two replicas and has one."""
    until_coordinator(s)
    s.until_coordinator()
    topic = s.make_topic()
    _describe(s, "transactions", TOPIC, "__transaction_state")
    states, offsets = Stored(s, TRANSACTIONS), Stored(s, OFFSETS)
    for number, commit in enumerate((True, False)):
        p = producer(s, f"t-{number}")
        until_added(s, p, (topic, [0]))
        until_written(s, p, topic, (0, batch(p)), version=11)
        s.call("add offsets", add_offsets(p, s.name("g")), 4)
        s.call("offsets", commit_offsets(p, s.name("g"), (topic, [(0, 1)])), 4)
        s.call(f"commit {commit}", end(p, commit=commit), 4)
        until_state(s, p.name, "CompleteCommit" if commit else "CompleteAbort")
    states.note("states")
    offsets.note("offsets", markers=True)


def min_isr_of_groups(s: Session) -> None:
    """Groups of both protocols where every partition asks for two replicas and has one."""
    s.until_coordinator()
    topic = assignable(s)
    _describe(s, "groups", TOPIC, "__consumer_offsets")
    offsets = Stored(s, OFFSETS)
    classic = s.name("classic")
    joined = requests.joined(s, "a classic member joins", classic, protocols=[("range", subscription([topic]))])
    members = {joined.member_id: assignment([(topic, [0])])}
    s.call("and syncs", requests.sync(classic, joined.generation_id, joined.member_id, members, **NAMING))
    s.call("commit", requests.commit(s.name("alone"), (topic, [(0, 3, "m")]), generation_id_or_member_epoch=-1), 9)
    modern = Member(s, s.name("modern"), "m")
    modern.join([topic])
    modern.comply()
    modern.leave()
    offsets.note("offsets")


SCRIPTS = (min_isr_of_a_broker, min_isr_of_a_topic, min_isr_of_transactions, min_isr_of_groups)
