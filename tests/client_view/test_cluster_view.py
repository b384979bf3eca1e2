"""A listener's view of the cluster is made once, and made anew when a part of it has changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pykbroker.client_view import cluster_view
from pykbroker.client_view.cluster_view import ClusterView, ClusterViews
from pykbroker.liveness.dead_brokers import DeadBrokers
from pykbroker.metadata.image import BrokerImage, Endpoint, MetadataImage, PartitionImage, TopicImage
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.metadata import MetadataResponsePartition

LISTENER = "PLAINTEXT"


def broker(fenced: bool = False) -> BrokerImage:
    return BrokerImage(
        id=1,
        epoch=1,
        incarnation_id=bytes(16),
        endpoints={LISTENER: Endpoint(LISTENER, "localhost", 9092, 0)},
        rack=None,
        fenced=fenced,
        in_controlled_shutdown=False,
        directories=(),
        features={},
    )


def topic(name: str, partitions: int = 2, leader_epoch: int = 0) -> TopicImage:
    one = PartitionImage((1,), (bytes(16),), (1,), (), (), (), (), 1, 0, leader_epoch, 0)
    return TopicImage(name, name.encode().ljust(16), dict.fromkeys(range(partitions), one))


def told(view: ClusterView, of: TopicImage, kind: int = 0) -> list[MetadataResponsePartition]:
    return view.partitions(
        of, kind, lambda index, one: MetadataResponsePartition(partition_index=index, leader_epoch=one.leader_epoch)
    )


def test_a_topic_is_told_of_once_until_it_changes() -> None:
    view = ClusterView({1: broker()}, LISTENER)
    before = topic("t")
    first = told(view, before)
    assert told(view, before) is first
    assert told(view, before, kind=6) is not first
    assert [one.leader_epoch for one in told(view, topic("t", leader_epoch=7))] == [7, 7]
    assert [one.leader_epoch for one in told(view, before)] == [0, 0]


def test_a_view_lives_as_long_as_the_brokers_stay_the_same() -> None:
    views = ClusterViews()
    image = replace(MetadataImage(), brokers={1: broker()})
    view = views.of(image, LISTENER)
    assert views.of(replace(image, offset=7), LISTENER) is view
    assert views.of(image, "OTHER") is not view
    fenced = views.of(replace(image, brokers={1: broker(fenced=True)}), LISTENER)
    assert fenced.alive([1]) == []
    assert views.of(image, LISTENER).alive([1]) == [1]


def test_clients_are_not_sent_to_a_leader_whose_process_is_gone() -> None:
    dead_brokers = DeadBrokers()
    views = ClusterViews(dead_brokers)
    image = replace(MetadataImage(), brokers={1: broker()})
    partition = topic("t").partitions[0]
    before = views.of(image, LISTENER)
    assert (before.leader(partition), before.leader_problem(partition, ErrorCode.LISTENER_NOT_FOUND)) == (1, None)
    dead_brokers.lose([1])
    gone = views.of(image, LISTENER)
    problem = gone.leader_problem(partition, ErrorCode.LISTENER_NOT_FOUND)
    assert (gone.leader(partition), problem) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    dead_brokers.find_again([1])
    assert views.of(image, LISTENER).leader(partition) == 1
    # An image decides that says something new of the broker, not one that has other news.
    dead_brokers.lose([1])
    other = replace(image, brokers={**image.brokers, 2: broker()})
    dead_brokers.publish(None, image, other)
    assert views.of(other, LISTENER).leader(partition) == -1
    again = replace(other, brokers={**other.brokers, 1: broker()})
    dead_brokers.publish(None, other, again)
    assert views.of(again, LISTENER).leader(partition) == 1


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_view, "KEPT_PARTITIONS", 5)
    view = ClusterView({1: broker()}, LISTENER)
    small = topic("small")
    kept = told(view, small)
    for epoch in range(9):
        # The same topic in another state takes the place of the one before.
        told(view, topic("t", leader_epoch=epoch))
    assert told(view, small) is kept
    large = topic("large", partitions=6)
    assert len(told(view, large)) == 6
    assert told(view, small) is not kept
