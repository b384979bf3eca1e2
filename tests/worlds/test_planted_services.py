"""The checker finds the bugs of twelve services, and is silent about the same services without them."""

from __future__ import annotations

import pytest

from pykbroker_worlds import Broken, World
from tests.worlds.planted_services import SERVICES, Service

each_service = pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
pytestmark = pytest.mark.slow
#: seeds of services without their bugs: one in each run, and all in a long one
_ONE, _ALL = 1, 200


@each_service
@pytest.mark.kafka_world(seeds=1)
def test_the_bug_is_found(service: Service) -> None:
    world = service.world(service.seed)
    with pytest.raises(Broken) as raised:
        world.run(lambda: service.play(world, True))
    assert raised.value.claim in service.claims
    story = str(raised.value)
    assert "what happened:" in story
    assert "starts" in story
    assert "partition " in story
    assert len(world.disturbances.events) <= 20


@each_service
@pytest.mark.kafka_world(seeds=_ONE)
def test_a_right_service_gives_no_alarm(service: Service, kafka_world: World) -> None:
    _play_right(service, kafka_world.seed)


@pytest.mark.long(amount=f"{_ALL} seeds")
@each_service
@pytest.mark.kafka_world(seeds=_ALL)
def test_a_right_service_gives_no_alarm_in_many_worlds(service: Service, kafka_world: World) -> None:
    _play_right(service, kafka_world.seed)


def _play_right(service: Service, seed: int) -> None:
    world = service.world(seed)
    world.run(lambda: service.play(world, False))
    assert not world.broken
