"""Nodes with three log directories: where replicas are, and how they move (KIP-113)."""

from __future__ import annotations

from typing import Any

from compat_tests.differential.session import Session
from pykbroker_wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from pykbroker_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pykbroker_wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker_wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"


def alter(topic: str, path: str, *indexes: int) -> AlterReplicaLogDirsRequest:
    topics = [AlterReplicaLogDirTopic(name=topic, partitions=list(indexes or (0,)))]
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])


def describe(topic: str, *indexes: int) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=list(indexes or (0,)))])


def paths(s: Session) -> list[str]:
    return sorted(result.log_dir for result in s.ask(DescribeLogDirsRequest(topics=[])).results)


def where(s: Session, topic: str, index: int = 0) -> list[list[Any]]:
    """Return [directory, True for a future replica, True if that lags] for each copy of a replica."""
    found = []
    for number, result in enumerate(sorted(s.ask(describe(topic, index)).results, key=lambda result: result.log_dir)):
        for described in result.topics:
            for partition in described.partitions:
                found.append([number, partition.is_future_key, partition.offset_lag > 0])
    return found


def throttle(s: Session, value: str | None) -> None:
    config = AlterableConfig(name=THROTTLE, config_operation=int(value is None), value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
    s.ask(IncrementalAlterConfigsRequest(resources=[resource]))
    s.until_published()


def made_in(s: Session, what: str, path: str, **configs: Any) -> str:
    """Make a topic whose replica is in this directory from the start."""
    s.ask(alter(s.name(what), path))
    return s.make_topic(what, **configs)


def directories(s: Session) -> None:
    """AlterReplicaLogDirs: what is refused, and where replicas are before and after."""
    first, second, third = paths(s)
    topic = made_in(s, "t", second)
    s.make_records(topic, [b"a" * 100, b"b" * 200, b"c"])
    s.note("made in the directory that was named before", where(s, topic))
    s.each("no directories", lambda v: AlterReplicaLogDirsRequest(dirs=[]))
    s.each("no topics", lambda v: AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=first, topics=[])]))
    s.each("an unknown directory", lambda v: alter(topic, "/nowhere"))
    s.each("an unknown directory and topic", lambda v: alter("no-such-topic", "/nowhere"))
    s.each("a relative path", lambda v: alter(topic, "data"))
    s.each("a slash too much", lambda v: alter(topic, first + "/"))
    s.each("an empty path", lambda v: alter(topic, ""))
    s.each("an unknown topic", lambda v: alter(s.name("none"), first))
    s.each("an unknown partition", lambda v: alter(topic, first, 1))
    s.each("a negative partition", lambda v: alter(topic, first, -1))
    s.each("an empty name", lambda v: alter("", first))
    s.each("where it is", lambda v: alter(topic, second))
    # The name of its copy would be longer than a file system allows.
    for length in (212, 213, 214, 249):
        s.each(f"a name of {length}", lambda v, length=length: alter("x" * length, first))  # type: ignore[misc]
    s.each("elsewhere, and where it is", lambda v: _twice(topic, first, second))
    s.until(lambda: where(s, topic) == [[1, False, False]], "it is back")
    s.call("to another one", alter(topic, third))
    s.until(lambda: where(s, topic) == [[2, False, False]], "it has moved")
    s.call("what is there", describe(topic))
    s.make_records(topic, [b"d"])
    s.call("back again", alter(topic, second))
    s.until(lambda: where(s, topic) == [[1, False, False]], "it has moved back")
    s.call("all of it is there", describe(topic))
    other = s.make_topic(partitions=3)
    answers = s.ask(alter(other, first, 0, 1, 2, 3)).results[0].partitions
    s.note("several", sorted([partition.partition_index, partition.error_code] for partition in answers))
    s.until(lambda: all(where(s, other, index) == [[0, False, False]] for index in range(3)), "all have moved")
    s.ask(alter(s.name("later"), third))
    s.ask(alter(s.name("later"), second))
    s.note("the last word counts", where(s, s.make_topic("later")))


def _twice(topic: str, path: str, other: str) -> AlterReplicaLogDirsRequest:
    named = [AlterReplicaLogDirTopic(name=topic, partitions=[0])]
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=one, topics=named) for one in (path, other)])


def cordoned(s: Session) -> None:
    """cordoned.log.dirs (KIP-1066): what may be said, where new replicas go, what does not move there."""
    first, second, third = paths(s)

    def say(value: str | None, broker: str = "1") -> None:
        config = AlterableConfig(name="cordoned.log.dirs", config_operation=int(value is None), value=value)
        resource = AlterConfigsResource(resource_type=4, resource_name=broker, configs=[config])
        answer = s.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0]
        s.note(f"cordoned at {broker!r}", [value, answer.error_code])

    def shown() -> list[bool]:
        found = sorted(s.ask(DescribeLogDirsRequest(topics=[])).results, key=lambda result: result.log_dir)
        return [result.is_cordoned for result in found]

    topic = made_in(s, "t", first)
    for value in ("nowhere", f"{first},nowhere", f"*,{first}", f"{first}/"):
        say(value)
    say(second, "")
    say(f"{second},{third}")
    s.until(lambda: shown() == [False, True, True], "two are cordoned")
    s.note("new ones go elsewhere", [where(s, s.make_topic()) for _ in range(3)])
    s.each("to a cordoned one", lambda v: alter(topic, second))
    s.each("an unknown topic to a cordoned one", lambda v: alter("no-such-topic", second))
    s.call("described", describe(topic))
    say("*")
    s.until(lambda: shown() == [True, True, True], "all are cordoned")
    wanted = CreatableTopic(name=s.name("none"), num_partitions=1, replication_factor=1)

    def refused() -> bool:
        return bool(
            s.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=20_000, validate_only=True)).topics[0].error_code
        )

    s.until(refused, "the controller knows")
    more = CreatePartitionsTopic(name=topic, count=3, assignments=None)
    s.note("no partitions", s.ask(CreatePartitionsRequest(topics=[more], timeout_ms=20_000)).results[0].error_code)
    s.note("no topics", s.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=20_000)).topics[0].error_code)
    wanted.num_partitions = wanted.replication_factor = -1
    wanted.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    s.note("nor where it is said", s.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=20_000)).topics[0].error_code)
    s.make_records(topic, [b"goes on"])
    say("")
    s.until(lambda: shown() == [False, False, False], "none is cordoned")
    say(None)


def moving(s: Session) -> None:
    """A replica on its way: what DescribeLogDirs shows, sent elsewhere, given up, its topic deleted."""
    first, second, third = paths(s)
    topic = made_in(s, "t", first, max_message_bytes="2000000")
    # More than either node copies at once.
    s.make_records(topic, [b"x" * 1_000_000] * 6)
    throttle(s, "1000")
    s.call("it begins", alter(topic, second))
    s.until(lambda: len(where(s, topic)) == 2, "a copy is seen")
    s.note("on its way", where(s, topic))
    s.call("the same again", alter(topic, second))
    s.note("still on its way", where(s, topic))
    s.call("elsewhere", alter(topic, third))
    s.until(lambda: [2, True, True] in where(s, topic), "the other copy is seen")
    s.note("on its other way", where(s, topic))
    s.make_records(topic, [b"meanwhile"])
    s.call("where it is: given up", alter(topic, first))
    s.until(lambda: len(where(s, topic)) == 1, "no copy is seen")
    s.note("given up", where(s, topic))
    s.call("what is there", describe(topic))
    s.call("once more", alter(topic, second))
    throttle(s, None)
    s.until(lambda: where(s, topic) == [[1, False, False]], "it has moved")
    s.call("all of it is there", describe(topic))
    throttle(s, "1000")
    s.call("and again", alter(topic, third))
    s.until(lambda: len(where(s, topic)) == 2, "a copy is seen")
    s.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=20_000))
    s.until_gone(topic)
    s.until(lambda: where(s, topic) == [], "nothing of it is left")
    s.call("of a deleted topic", alter(topic, third))
    throttle(s, None)


SCRIPTS = (directories, moving, cordoned)
