"""The topics as groups see them, and the hash that Apache Kafka writes into a group's record."""

from __future__ import annotations

from pykbroker.coordinator.group.topics import GroupTopics
from pykbroker.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage, TopicsImage

ID = bytes(range(1, 17))
OTHER = ID[8:] + ID[:8]


def topics() -> GroupTopics:
    def partitions(count: int, *replicas: int) -> dict[int, PartitionImage]:
        return {
            index: PartitionImage(replicas, (bytes(16),) * len(replicas), replicas, (), (), (), (), 1, 0, 0, 0)
            for index in range(count)
        }

    def broker(node_id: int, rack: str | None) -> BrokerImage:
        return BrokerImage(node_id, 1, bytes(16), {}, rack, False, False, (), {})

    known = (TopicImage("té", ID, partitions(3, 2, 1)), TopicImage("plain", OTHER, partitions(40, 3)))
    return GroupTopics(
        MetadataImage(
            offset=7,
            topics=TopicsImage({topic.name: topic for topic in known}, {topic.id: topic for topic in known}),
            brokers={1: broker(1, "east"), 2: broker(2, "west"), 3: broker(3, None)},
        )
    )


def test_the_hash_is_apache_kafkas() -> None:
    """The numbers are those of hash4j, with the input of Kafka's Utils.computeTopicHash and computeGroupHash of
    4.3.1."""
    both = topics().metadata_hash(["té", "plain", "missing"])
    assert both == -5426794931525259703
    assert topics().metadata_hash(["missing"]) == 0
    assert topics().metadata_hash(["té"]) not in (0, both)


def test_what_assignors_ask() -> None:
    view = topics()
    assert (view.partition_count(ID), view.partition_count(bytes(16))) == (3, -1)
    assert view.racks(ID, 0) == {"east", "west"}
    assert view.racks(OTHER, 0) == frozenset()
    assert (view.id_of("té"), view.id_of("missing")) == (ID, None)
    assert (view.name_of(ID), view.name_of(bytes(16))) == ("té", None)
    assert set(view.ids_of(["té", "missing"])) == {ID}
