"""Answers wait while it is in doubt whether a broker is gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from pykbroker.liveness.dead_brokers import UNREAD_SECONDS, DeadBrokers
from pykbroker.metadata.image import BrokerImage, MetadataImage
from pykbroker.net.promise import Promise


def broker() -> BrokerImage:
    return BrokerImage(
        id=1,
        epoch=1,
        incarnation_id=bytes(16),
        endpoints={},
        rack=None,
        fenced=False,
        in_controlled_shutdown=False,
        directories=(),
        features={},
    )


def test_answers_wait_while_a_broker_is_in_doubt() -> None:
    gone = DeadBrokers()
    assert gone.when_settled(lambda: "at once") == "at once"
    gone.doubt("a")
    gone.doubt("b")
    said: list[str] = []
    first, second = (gone.when_settled(partial(told_later, said, name)) for name in ("first", "second"))
    assert isinstance(first, Promise)
    assert isinstance(second, Promise)
    # Its client has gone.
    second.cancel()
    gone.settle("a")
    assert not first.done()
    gone.settle("b")
    assert first.result() == "first"
    assert said == ["first"]
    assert gone.when_settled(lambda: "at once") == "at once"


def test_answers_in_a_cluster_wait_until_what_has_arrived_is_read() -> None:
    timers: list[tuple[float, Callable[[], None]]] = []
    gone = DeadBrokers(lambda seconds, callback: timers.append((seconds, callback)))
    alone = replace(MetadataImage(), brokers={1: broker()})
    gone.publish(None, MetadataImage(), alone)
    assert gone.when_settled(lambda: "at once") == "at once"
    gone.publish(None, alone, replace(alone, brokers={1: broker(), 2: broker()}))
    settled, doubted = (gone.when_settled(partial(told_later, [], name)) for name in ("settled", "doubted"))
    assert isinstance(settled, Promise)
    assert isinstance(doubted, Promise)
    assert not settled.done()
    assert [seconds for seconds, _ in timers] == [UNREAD_SECONDS] * 2
    timers[0][1]()
    assert settled.result() == "settled"
    # The end of a connection was read while the second answer waited.
    gone.doubt("a")
    timers[1][1]()
    assert not doubted.done()
    gone.settle("a")
    assert doubted.result() == "doubted"


def test_an_answer_that_waited_and_fails_gives_its_error() -> None:
    gone = DeadBrokers()
    gone.doubt("a")
    failing = gone.when_settled(lambda: 1 / 0)
    assert isinstance(failing, Promise)
    gone.settle("a")
    assert isinstance(failing.exception(), ZeroDivisionError)


def told_later(said: list[str], name: str) -> str:
    said.append(name)
    return name
