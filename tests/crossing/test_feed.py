"""The metadata on its way to the broker half: whole and in order, and bounded while that stands still."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.crossing import feed as feeds
from pykbroker.crossing.broker_end import BrokerEnd
from pykbroker.crossing.feed import MetadataFeed
from pykbroker.crossing.loop_messages import (
    AnotherLeader,
    InitialLoadCompleted,
    MetadataChanged,
    MetadataReplaced,
    MetadataTaken,
    ToBroker,
)
from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.features import METADATA_VERSION_LATEST
from pykbroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pykbroker.metadata.loader import MetadataLoader
from pykbroker.metadata.records import encode_records
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.metadata import (
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.coordinator.fakes import Loop, as_loop


class Seen:
    """A publisher that applies each delta to the image that it got before."""

    def __init__(self) -> None:
        self.image = EMPTY_IMAGE
        self.offsets: list[int] = []

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        assert old is self.image
        assert delta.image is old or old is EMPTY_IMAGE
        applied = delta.apply(new.offset, new.epoch, new.timestamp_ms)
        assert applied == new
        gone = {topic.id for topic in delta.topics.deleted.values()}
        assert gone == old.topics.by_id.keys() - new.topics.by_id.keys()
        self.image = new
        self.offsets.append(new.offset)


class Way:
    """A loader, its feed, and a broker half that takes a message when the test calls `take`."""

    def __init__(self) -> None:
        runtime: Any = SimpleNamespace(loop=as_loop(Loop()))
        self.loader = MetadataLoader()
        self.waiting: list[ToBroker] = []
        self.most = 0
        self.moved = 0
        self.feed = MetadataFeed(self.loader, self._put, self._moved)
        self.back: list[Any] = []
        self.end = BrokerEnd(runtime, 1, self.back.append)
        self.seen = Seen()
        self.end.metadata.add_publisher(self.seen)
        self.offset = -1
        self.loaded = 0
        self.end.when_loaded(self._loaded)

    def _loaded(self) -> None:
        self.loaded += 1

    def _moved(self) -> None:
        self.moved += 1

    def _put(self, message: ToBroker) -> None:
        self.waiting.append(message)
        self.most = max(self.most, len(self.waiting))

    def commit(self, *records: TopLevel) -> None:
        values = encode_records(records, METADATA_VERSION_LATEST)
        self.loader.handle_commit(self.offset + 1, 1, 0, values)
        self.offset += len(values)

    def take(self, count: int | None = None) -> None:
        """The broker half turns, and its word comes back."""
        taken, self.waiting = self.waiting[:count], self.waiting[count:] if count is not None else []
        for message in taken:
            self.end.take(message)
        back, self.back[:] = list(self.back), []
        for word in back:
            assert isinstance(word, MetadataTaken)
            self.feed.taken()

    def rest(self) -> None:
        while self.waiting:
            self.take()


def config(number: int) -> ConfigRecord:
    return ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=str(number))


def kinds(messages: Sequence[ToBroker]) -> list[type]:
    return [type(message) for message in messages]


def test_each_change_is_handed_over_and_the_leader_in_its_place() -> None:
    way = Way()
    way.feed.start()
    way.commit(config(1))
    way.loader.handle_leader(1, 7)
    way.commit(config(2))
    way.feed.initial_load_completed()
    assert kinds(way.waiting) == [MetadataChanged, AnotherLeader, MetadataChanged, InitialLoadCompleted]
    assert (way.feed.seen_offset, way.loaded) == (-1, 0)
    way.take(1)
    assert way.feed.seen_offset == 0
    assert way.end.metadata.leader_id is None
    way.rest()
    assert way.seen.offsets == [0, 1]
    assert [way.end.metadata.leader_id, way.end.metadata.leader_epoch] == [1, 7]
    assert (way.feed.seen_offset, way.loaded) == (1, 1)


def test_what_was_known_before_comes_as_one_image() -> None:
    way = Way()
    way.commit(config(1))
    way.commit(config(2))
    way.loader.handle_leader(3, 4)
    way.feed.start()
    assert kinds(way.waiting) == [MetadataReplaced, AnotherLeader]
    way.rest()
    assert way.seen.image is way.loader.image
    assert way.end.metadata.leader_id == 3


def test_an_unfinished_transaction_was_seen_when_everything_before_it_was() -> None:
    way = Way()
    way.feed.start()
    way.commit(config(1))
    way.rest()
    way.loader.last_offset = 9
    assert way.feed.seen_offset == 9
    way.commit(config(2))
    assert way.feed.seen_offset == 0


def test_of_two_changes_in_one_batch_only_what_was_taken_is_seen() -> None:
    """A batch may end one change of the metadata and contain a whole transaction after it."""
    way = Way()
    way.feed.start()
    way.commit(config(1), BeginTransactionRecord(name="two"), config(2), config(3), EndTransactionRecord())
    assert kinds(way.waiting) == [MetadataChanged, MetadataChanged]
    way.take(1)
    assert way.feed.seen_offset == 0
    way.rest()
    assert way.feed.seen_offset == 4


@pytest.mark.slow
def test_a_broker_half_that_stands_still_gets_the_newest_image_instead_of_ten_thousand_changes() -> None:
    way = Way()
    way.feed.start()
    for number in range(10_000):
        way.commit(config(number))
    way.loader.handle_leader(2, 9)
    way.feed.initial_load_completed()
    assert len(way.waiting) == feeds.MOST_CHANGES
    assert way.feed.seen_offset == -1
    way.take(feeds.MOST_CHANGES - 1)
    assert way.feed.seen_offset == feeds.MOST_CHANGES - 2
    way.take()
    assert kinds(way.waiting) == [MetadataReplaced, AnotherLeader, InitialLoadCompleted]
    assert way.feed.seen_offset == feeds.MOST_CHANGES - 1
    way.rest()
    assert way.seen.image is way.loader.image
    assert way.feed.seen_offset == 9_999
    assert (way.end.metadata.leader_id, way.loaded) == (2, 1)
    way.commit(config(1))
    assert kinds(way.waiting) == [MetadataChanged]


def test_leaders_that_come_and_go_are_bounded_as_well() -> None:
    way = Way()
    way.feed.start()
    for epoch in range(5_000):
        way.loader.handle_leader(epoch % 3, epoch)
    assert len(way.waiting) == feeds.MOST_CHANGES
    way.rest()
    assert (way.end.metadata.leader_id, way.end.metadata.leader_epoch) == (4_999 % 3, 4_999)


def test_large_changes_are_bounded_by_their_bytes() -> None:
    way = Way()
    way.feed.start()

    def large(size: int) -> list[ConfigRecord]:
        return [ConfigRecord(resource_type=2, resource_name="t", name="a", value="x" * 30_000)] * (size // 30_000)

    for _ in range(40):
        way.commit(*large(1 << 20))
    assert len(way.waiting) <= 1 + (feeds.MOST_BYTES >> 20)
    way.rest()
    assert way.seen.image is way.loader.image
    # A change that is larger than the limit is sent alone.
    way.commit(*large(feeds.MOST_BYTES + (1 << 20)))
    assert kinds(way.waiting) == [MetadataChanged]


TOPICS = ("a", "b", "c")


@pytest.mark.slow
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("create"), st.sampled_from(TOPICS)),
            st.tuples(st.just("remove"), st.sampled_from(TOPICS)),
            st.tuples(st.just("config"), st.sampled_from(TOPICS)),
            st.tuples(st.just("take"), st.integers(1, 4)),
        ),
        max_size=60,
    ),
    # An image, the leader and the end of the initial load come together.
    st.integers(3, 6),
)
def test_however_far_behind_the_publishers_see_each_topic_come_and_go(steps: list[tuple[str, Any]], most: int) -> None:
    before, feeds.MOST_CHANGES = feeds.MOST_CHANGES, most  # type: ignore[misc]
    try:
        way = Way()
        way.feed.start()
        ids: dict[str, bytes] = {}
        made = 0
        for what, which in steps:
            if what == "create" and which not in ids:
                made += 1
                ids[which] = made.to_bytes(16, "big")
                way.commit(
                    TopicRecord(name=which, topic_id=ids[which]),
                    PartitionRecord(partition_id=0, topic_id=ids[which], replicas=[1], isr=[1], leader=1),
                )
            elif what == "remove" and which in ids:
                way.commit(RemoveTopicRecord(topic_id=ids.pop(which)))
            elif what == "config":
                way.commit(ConfigRecord(resource_type=2, resource_name=which, name="retention.ms", value=str(made)))
            elif what == "take":
                way.take(which)
            assert len(way.waiting) <= most
        way.rest()
        assert way.seen.image == way.loader.image
        assert way.end.metadata.image is way.loader.image or way.loader.image is EMPTY_IMAGE
    finally:
        feeds.MOST_CHANGES = before  # type: ignore[misc]
