"""The checker finds the bugs of nineteen services, and is silent about the same services without them."""

from __future__ import annotations

import re

import pytest

from pykbroker_worlds import ClaimFailed, World
from tests.worlds import strangers_services
from tests.worlds.planted_services import SERVICES, Service


def _name(service: Service) -> str:
    return service.name


_ALL = [*SERVICES, *strangers_services.SERVICES]
#: the right services that are played in each run of the tests, and most often in a long run
_FIVE = ("commit before work", "no flush on revoke", "zombie writer", "dual write", "read uncommitted")
_SEEDS, _MANY_SEEDS = 200, 2000
each_service = pytest.mark.parametrize("service", _ALL, ids=_name)
each_of_five = pytest.mark.parametrize("service", [one for one in _ALL if one.name in _FIVE], ids=_name)
each_other = pytest.mark.parametrize("service", [one for one in _ALL if one.name not in _FIVE], ids=_name)
pytestmark = pytest.mark.slow


@each_service
@pytest.mark.kafka_world(seeds=1)
def test_the_bug_is_found_and_the_right_service_gives_no_alarm(service: Service) -> None:
    """Both have the same seed, so the alarm is about the bug."""
    world = service.world(service.seed)
    with pytest.raises(ClaimFailed) as raised:
        world.run(lambda: service.play(world, True))
    assert raised.value.wrong.kind == service.kind
    story = str(raised.value)
    assert raised.value.wrong.text in story
    for fact in raised.value.wrong.facts:
        assert fact.text in story
    assert re.search(r"^  partition \w+-\d: leader \d, ISR ", story, re.MULTILINE)
    _play_right(service, service.seed)


@pytest.mark.long(amount=f"{_SEEDS} seeds")
@pytest.mark.timeout(3600)
@each_other
@pytest.mark.kafka_world(seeds=_SEEDS)
def test_a_right_service_gives_no_alarm_in_many_worlds(service: Service, kafka_world: World) -> None:
    _play_right(service, kafka_world.seed)


@pytest.mark.timeout(3600)
@each_of_five
@pytest.mark.kafka_world(seeds=_SEEDS)
def test_five_right_services_give_no_alarm_in_many_worlds(service: Service, kafka_world: World) -> None:
    _play_right(service, kafka_world.seed)


@pytest.mark.long(amount=f"{_MANY_SEEDS} seeds")
@pytest.mark.timeout(7200)
@each_of_five
@pytest.mark.kafka_world(seeds=_MANY_SEEDS)
def test_five_right_services_give_no_alarm_in_very_many_worlds(service: Service, kafka_world: World) -> None:
    _play_right(service, kafka_world.seed)


def _play_right(service: Service, seed: int) -> None:
    world = service.world(seed)
    world.run(lambda: service.play(world, False))
