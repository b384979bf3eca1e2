"""The lease of a lake on an object store, in memory: with a store that creates an object only if it is absent, and a
clock that moves when a driver waits."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from pipeline.lake import lease
from pipeline.lake.lease import Holder, Lease
from pipeline.lake.positions import LakeError, LakeTakenError


class Store:
    """The objects of one lease. `exclusive` is what `create` is to be."""

    def __init__(self, *, exclusive: bool = True) -> None:
        self.objects: dict[str, str] = {}
        self.exclusive = exclusive
        self.before_create: Callable[[], None] | None = None

    def names(self) -> list[str]:
        return sorted(self.objects)

    def read(self, name: str) -> str:
        if name not in self.objects:
            raise FileNotFoundError(name)
        return self.objects[name]

    def create(self, name: str, text: str) -> bool:
        act, self.before_create = self.before_create, None
        if act is not None:
            act()
        if self.exclusive and name in self.objects:
            return False
        self.objects[name] = text
        return True

    def write(self, name: str, text: str) -> None:
        self.objects[name] = text

    def delete(self, name: str) -> None:
        self.objects.pop(name, None)


class Clock:
    """A clock that only a wait moves. During a wait it calls a function, in which others act."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.now = 0.0
        self.meanwhile = meanwhile

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


def driver(store: Store, name: str, clock: Clock | None = None) -> Lease:
    clock = clock or Clock()
    return Lease(store, "s3a://bucket/lake", Holder(name, f"process {name} on host"), clock, clock.wait)


def test_the_first_driver_need_not_wait() -> None:
    store, clock = Store(), Clock()
    driver(store, "a", clock).take()
    assert clock.now == 0
    assert json.loads(store.objects["00000001.json"])["driver"] == "a"


def test_a_second_driver_stops_when_the_first_one_renews() -> None:
    store = Store()
    first = driver(store, "a")
    first.take()
    clock = Clock(first.renew)
    with pytest.raises(LakeTakenError, match=re.escape("another driver (process a on host) writes to the lake s3a:")):
        driver(store, "b", clock).take()
    assert clock.now <= lease.RENEW_S, "it is told at the first renewal"
    first.check()
    assert store.names() == ["00000001.json"]


def test_a_driver_that_was_killed_is_followed_after_its_patience() -> None:
    store, clock = Store(), Clock()
    driver(store, "a").take()
    second = driver(store, "b", clock)
    second.take()
    assert lease.PATIENCE_S <= clock.now <= lease.PATIENCE_S + lease.LOOK_S
    assert store.names() == ["00000002.json"], "and what was before is cleared away"


def test_a_driver_that_has_ended_is_followed_at_once() -> None:
    store, clock = Store(), Clock()
    first = driver(store, "a")
    first.take()
    first.keep()
    first.give_back()
    driver(store, "b", clock).take()
    assert clock.now == 0


def test_a_driver_that_ends_while_it_is_watched_is_followed() -> None:
    store = Store()
    first = driver(store, "a")
    first.take()
    driver(store, "b", Clock(first.give_back)).take()
    assert json.loads(store.objects["00000002.json"])["driver"] == "b"


def test_a_driver_that_stood_still_finds_its_lease_lost() -> None:
    store = Store()
    first, second = driver(store, "a"), driver(store, "b")
    first.take()
    second.take()
    first.check()  # it does not know yet
    first.renew()
    with pytest.raises(LakeTakenError, match="had not renewed its lease for 30 s"):
        first.check()
    first.give_back()
    second.renew()
    second.check()


def test_a_renewal_that_comes_too_late_takes_nothing_back() -> None:
    """The driver had looked, and stood still before it wrote: its object is there again, under a lower number."""
    store = Store()
    first, second = driver(store, "a"), driver(store, "b")
    first.take()
    mine = store.objects["00000001.json"]
    second.take()
    store.write("00000001.json", mine)
    second.renew()
    second.check()
    with pytest.raises(LakeTakenError, match="process b"):
        driver(store, "c", Clock(second.renew)).take()


def test_one_of_two_drivers_that_have_waited_gets_it() -> None:
    store = Store()
    driver(store, "killed").take()
    first = driver(store, "a")
    second = driver(store, "b", Clock(lambda: first.renew() if first._number else None))
    store.before_create = first.take
    with pytest.raises(LakeTakenError, match="process a"):
        second.take()
    assert json.loads(store.objects["00000002.json"])["driver"] == "a"


def test_a_number_that_was_used_and_cleared_away_is_not_used_again() -> None:
    """The one that waits stood still before it created its object, while two drivers came and one is still there."""
    store = Store()
    driver(store, "killed").take()
    later: list[Lease] = []

    def come_and_stay() -> None:
        driver(store, "a").take()
        later.append(driver(store, "b"))
        later[0].take()
        assert store.names() == ["00000003.json"]

    def live_on() -> None:
        for each in later:
            each.renew()

    store.before_create = come_and_stay
    waiting = driver(store, "c", Clock(live_on))
    with pytest.raises(LakeTakenError, match="process b"):
        waiting.take()
    later[0].check()


@pytest.mark.parametrize("text", ["", "[]", '{"driver": "x"}', '{"of": "a later version"}'])
def test_an_object_that_is_not_understood_is_waited_for_all_the_same(text: str) -> None:
    store, clock = Store(), Clock()
    store.write("00000007.json", text)
    driver(store, "a", clock).take()
    assert clock.now >= lease.PATIENCE_S
    assert store.names() == ["00000008.json"]

    store.write("00000009.json", text)
    changes = Clock(lambda: store.write("00000009.json", text + " "))
    with pytest.raises(LakeTakenError, match="of another version of the pipeline"):
        driver(store, "b", changes).take()


def test_a_store_that_creates_what_is_there_is_refused() -> None:
    """It ignores `If-None-Match`: two drivers would overwrite each other's commits in the log."""
    store = Store(exclusive=False)
    with pytest.raises(LakeError, match=r"creates an object that is there already .PutObject with If-None-Match"):
        driver(store, "a").take()
    assert json.loads(store.objects["00000001.json"])["ended"], "nobody has to wait for the one that was refused"


def test_it_is_renewed_by_itself_also_after_the_store_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    monkeypatch.setattr(lease, "RENEW_S", 0.001)
    renewed = threading.Event()

    class Away(Store):
        calls = 0

        def write(self, name: str, text: str) -> None:
            self.calls += 1
            if self.calls < 3:
                raise OSError("away")
            super().write(name, text)
            renewed.set()

    store = Away()
    holder = driver(store, "a")
    holder.take()
    holder.keep()
    assert renewed.wait(10)
    holder.give_back()
    assert json.loads(store.objects["00000001.json"])["ended"]
