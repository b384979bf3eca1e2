"""A shard with consumer groups (KIP-848): topics that come and go, members that heartbeat.

A topic's id is its name, padded, so that answers are readable. Errors keep their message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

from pykbroker.coordinator.group.configs import ConsumerGroupConfig
from pykbroker.coordinator.group.consumer.consumer_group import ConsumerGroup, ConsumerState
from pykbroker.coordinator.group.consumer.consumer_heartbeat import ConsumerClient
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker.coordinator.group.shard import GroupShard
from pykbroker.coordinator.group.topics import GroupTopics
from pykbroker.coordinator.result import Result, Token
from pykbroker.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage, TopicsImage
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from pykbroker_wire.messages.consumer_protocol import ConsumerProtocolSubscription, SubscriptionTopicPartition
from tests.coordinator.group.harness import Bench, Refused, consumer_groups

Partitions = set[tuple[str, int]]


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")[:16]


def topic_name(identity: bytes) -> str:
    return identity.rstrip(b"\0").decode()


def settings(assignment_interval_ms: int = 0, **others: Any) -> GroupSettings:
    """Return settings with which targets are computed at once, unless a test sets an interval."""
    config = ConsumerGroupConfig(assignment_interval_ms=assignment_interval_ms)
    return GroupSettings(consumer_config=lambda _group_id: config, **others)


def _partition(replicas: tuple[int, ...]) -> PartitionImage:
    return PartitionImage(
        replicas=replicas,
        directories=(bytes(16),) * len(replicas),
        isr=replicas,
        elr=(),
        last_known_elr=(),
        removing_replicas=(),
        adding_replicas=(),
        leader=replicas[0],
        leader_recovery_state=0,
        leader_epoch=0,
        partition_epoch=0,
    )


def _broker(node_id: int, rack: str | None) -> BrokerImage:
    return BrokerImage(node_id, 1, bytes(16), {}, rack, False, False, (), {})


class ConsumerBench(Bench):
    """A bench whose topics are set with `create`, `grow` and `delete`."""

    last_error: KafkaError | None = None

    def create(self, *topics: str, partitions: int = 4, racks: Iterable[str | None] = (None,)) -> None:
        racks = list(racks)
        self._publish(
            {name: TopicImage(name, topic_id(name), _partitions(partitions, len(racks))) for name in topics}, racks
        )

    grow = create

    def delete(self, *topics: str) -> None:
        self._publish(dict.fromkeys(topics))

    def _publish(self, changes: Mapping[str, TopicImage | None], racks: list[str | None] | None = None) -> None:
        old = self.topics.image
        by_name = dict(old.topics.by_name)
        changed: dict[bytes, Any] = {}
        deleted: dict[bytes, Any] = {}
        for name, topic in changes.items():
            if topic is None:
                gone = by_name.pop(name)
                deleted[gone.id] = gone
            else:
                by_name[name] = topic
                changed[topic.id] = SimpleNamespace(name=name)
        new = MetadataImage(
            offset=old.offset + 1,
            topics=TopicsImage(by_name, {topic.id: topic for topic in by_name.values()}),
            brokers=old.brokers
            if racks is None
            else {node_id: _broker(node_id, rack) for node_id, rack in enumerate(racks, 1)},
        )
        delta = cast(Any, SimpleNamespace(topics=SimpleNamespace(changed=changed, deleted=deleted)))
        names = self.topics.publish(delta, old, new)
        self.carry_out(self.shard.topics_changed(names, self.now_ms), None)
        names_and_ids = [(topic.name, topic.id) for topic in deleted.values()]
        self.carry_out(self.shard.topics_deleted(names_and_ids, self.now_ms), None)

    # -- requests -----------------------------------------------------------------------------------------------------

    def run(self, operation: Callable[[GroupShard, Token, int], Result]) -> Token:
        def noting(shard: GroupShard, token: Token, now_ms: int) -> Result:
            try:
                return operation(shard, token, now_ms)
            except KafkaError as error:
                self.last_error = error
                raise

        return super().run(noting)

    def beat(
        self,
        member: str = "m1",
        epoch: int = 0,
        *,
        group: str = "g",
        topics: Iterable[str] | None = None,
        regex: str | None = None,
        owned: Partitions | None = None,
        instance: str | None = None,
        rack: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int = -1,
        client: str = "client",
        may_describe: Callable[[str], bool] = lambda _topic: True,
        connection: int | None = None,
    ) -> ConsumerGroupHeartbeatResponse | Refused:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            instance_id=instance,
            rack_id=rack,
            rebalance_timeout_ms=rebalance_ms,
            subscribed_topic_names=None if topics is None else list(topics),
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=None if owned is None else _request_partitions(owned),
        )
        who = ConsumerClient(client, "/10.0.0.1", f"new-{len(self.log)}", may_describe, connection)
        answer: ConsumerGroupHeartbeatResponse | Refused = self.ask(
            lambda shard, token, now_ms: shard.consumer_heartbeat(request, who, token, now_ms)
        )
        return answer

    def enter(self, member: str = "m1", *topics: str, **options: Any) -> ConsumerGroupHeartbeatResponse:
        """Send the first heartbeat of a member."""
        fields: dict[str, Any] = {"rebalance_ms": 60_000, "owned": set(), "topics": topics or ("t",), **options}
        answer = self.beat(member, 0, **fields)
        assert not isinstance(answer, Refused), self.last_error
        return answer

    def group(self, name: str = "g") -> ConsumerGroup:
        return consumer_groups(self.shard)[name]


def _partitions(count: int, replicas: int) -> dict[int, PartitionImage]:
    nodes = tuple(range(1, replicas + 1))
    return {index: _partition(nodes[index % replicas :] + nodes[: index % replicas]) for index in range(count)}


def _request_partitions(owned: Partitions) -> list[RequestTopicPartitions]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(owned):
        by_topic.setdefault(topic, []).append(partition)
    return [
        RequestTopicPartitions(topic_id=topic_id(topic), partitions=partitions)
        for topic, partitions in by_topic.items()
    ]


def given(answer: ConsumerGroupHeartbeatResponse | Refused) -> Partitions | None:
    """Return the assignment of the answer, None if it has none."""
    assert not isinstance(answer, Refused), answer
    if answer.assignment is None:
        return None
    return {
        (topic_name(topic.topic_id), partition)
        for topic in answer.assignment.topic_partitions
        for partition in topic.partitions
    }


def embedded(*topics: str, owned: Partitions = frozenset(), version: int = 1) -> bytes:  # type: ignore[assignment]
    """Return the subscription of a classic consumer, with the partitions that it owns."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(owned):
        by_topic.setdefault(topic, []).append(partition)
    message = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[
            SubscriptionTopicPartition(topic=topic, partitions=partitions) for topic, partitions in by_topic.items()
        ],
    )
    return version.to_bytes(2, "big") + message.encode_bytes(version)


__all__ = ["ConsumerBench", "GroupTopics", "Partitions", "embedded", "given", "settings", "topic_id", "topic_name"]


ALL = {("t", index) for index in range(4)}


def refused(bench: ConsumerBench, answer: Any, code: ErrorCode, words: str = "") -> None:
    assert answer == Refused(code), answer
    assert bench.last_error is not None
    assert words in bench.last_error.message


def epoch(answer: ConsumerGroupHeartbeatResponse | Refused) -> int:
    assert not isinstance(answer, Refused), answer
    return answer.member_epoch


def pair(bench: ConsumerBench) -> tuple[Partitions, Partitions]:
    """Return the partitions of two reconciled members that share the topic."""
    first = bench.enter("m1")
    bench.enter("m2")
    told = bench.beat("m1", epoch(first), owned=ALL)
    kept = given(told)
    assert kept is not None
    third = bench.beat("m1", epoch(told), owned=kept)
    second = bench.beat("m2", 3)
    theirs = given(second)
    assert theirs is not None
    assert (epoch(third), epoch(second)) == (3, 3)
    assert bench.group().state is ConsumerState.STABLE
    return kept, theirs
