"""A broker of each implementation, with the properties that the module of the tests has as `CONFIG`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pykbroker.testing import Broker
from testkit import needs
from testkit.oracle.kafka import ApacheKafka, kafka_libs


@pytest.fixture(scope="module")
def kafka(request: pytest.FixtureRequest) -> Iterator[ApacheKafka]:
    needs.java()
    kafka_libs()
    with ApacheKafka(request.module.CONFIG) as node:
        yield node


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(request.module.CONFIG) as started:
        yield started
