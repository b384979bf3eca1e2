"""One broker for the tests of faults, without a rule at the beginning and at the end of each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pykbroker


@pytest.fixture(scope="package")
def shared_broker() -> Iterator[pykbroker.Broker]:
    settings = {"num.partitions": 2, "group.share.min.record.lock.duration.ms": 1000}
    with pykbroker.Broker(settings) as broker:
        yield broker


@pytest.fixture
def broker(shared_broker: pykbroker.Broker) -> Iterator[pykbroker.Broker]:
    yield shared_broker
    shared_broker.faults.clear()
