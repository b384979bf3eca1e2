"""The owner of each partition of a consumer group."""

from __future__ import annotations

import logging

import pytest

from pykbroker.coordinator.group.consumer.consumer_member import NO_EPOCH, ConsumerMember
from pykbroker.coordinator.group.consumer.partition_epochs import PartitionEpochs

TOPIC = b"t" * 16


def test_a_member_owns_what_it_is_to_give_up_until_it_is_released() -> None:
    epochs = PartitionEpochs("g")
    member = ConsumerMember("m", epoch=3, assigned={TOPIC: {0: 3}}, revoking={TOPIC: {1: 2}})
    epochs.own(member)
    assert [epochs.of(TOPIC, partition) for partition in (0, 1, 2)] == [3, 3, NO_EPOCH]
    epochs.release(member)
    assert epochs.by_topic == {}


def test_a_partition_that_another_member_got_since_then_stays_with_that_member(
    caplog: pytest.LogCaptureFixture,
) -> None:
    epochs = PartitionEpochs("g")
    old = ConsumerMember("old", epoch=3, assigned={TOPIC: {0: 3}})
    epochs.own(old)
    epochs.own(ConsumerMember("new", epoch=4, assigned={TOPIC: {0: 4}}))
    epochs.release(old)
    assert epochs.of(TOPIC, 0) == 4
    assert not caplog.records


def test_a_second_owner_in_the_same_epoch_is_logged_and_taken(caplog: pytest.LogCaptureFixture) -> None:
    epochs = PartitionEpochs("g")
    for name in ("m1", "m2"):
        epochs.own(ConsumerMember(name, epoch=3, assigned={TOPIC: {0: 3}}))
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert epochs.of(TOPIC, 0) == 3
