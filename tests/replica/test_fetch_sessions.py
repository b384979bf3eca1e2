"""The cache of fetch sessions: the fetcher that gets one, the one that loses one, and epochs (KIP-227)."""

from __future__ import annotations

import random

import pytest

from pykbroker.metrics.registry import Metrics
from pykbroker.replica import fetch_sessions
from pykbroker.replica.fetch_sessions import (
    FINAL_EPOCH,
    MIN_EVICTION_SECONDS,
    FetchSession,
    FetchSessions,
    SessionKey,
    SessionPartition,
    next_epoch,
)
from pykbroker_wire.errors import ErrorCode

LATER = MIN_EVICTION_SECONDS + 1


def members(count: int) -> list[tuple[SessionKey, SessionPartition]]:
    return [((b"t" * 16, index), SessionPartition(None, b"t" * 16, index)) for index in range(count)]


class Cache:
    def __init__(self, slots: int = 2) -> None:
        self.metrics = Metrics()
        self.sessions = FetchSessions(slots, random.Random(1), self.metrics)

    def create(self, size: int = 1, now: float = 0.0, privileged: bool = False) -> FetchSession | None:
        return self.sessions.create(members(size), privileged=privileged, uses_topic_ids=True, now=now)

    def must_create(self, size: int = 1, now: float = 0.0, privileged: bool = False) -> FetchSession:
        session = self.create(size, now, privileged)
        assert session is not None
        return session

    def has(self, session: FetchSession) -> bool:
        return self.sessions.find(session.id, session.epoch, True, 0.0) is session


@pytest.mark.parametrize(("epoch", "following"), [(0, 1), (1, 2), (2**31 - 1, 1), (FINAL_EPOCH, FINAL_EPOCH)])
def test_epochs(epoch: int, following: int) -> None:
    assert next_epoch(epoch) == following


def test_finding_one_moves_its_epoch(cache: Cache) -> None:
    session = cache.must_create()
    find = cache.sessions.find
    assert find(session.id, 2, True, 0.0) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert find(session.id, 1, False, 0.0) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert find(session.id, 1, True, 0.0) is session
    assert find(session.id, 1, True, 0.0) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert find(session.id, 2, True, 0.0) is session
    cache.sessions.close(session.id)
    assert find(session.id, 3, True, 0.0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.fixture
def cache() -> Cache:
    return Cache()


def test_a_full_cache_keeps_what_is_in_use(cache: Cache) -> None:
    first, second = cache.must_create(), cache.must_create()
    assert cache.create(size=100, now=1.0) is None
    assert cache.has(first)
    assert cache.has(second)


def test_a_session_that_nobody_uses_goes_first(cache: Cache) -> None:
    first, second = cache.must_create(), cache.must_create()
    cache.sessions.find(first.id, 1, True, LATER - 10)
    third = cache.must_create(now=LATER)
    assert cache.has(first)
    assert not cache.has(second)
    assert cache.has(third)


def test_an_old_small_session_goes_for_a_larger_one(cache: Cache) -> None:
    small, large = cache.must_create(1), cache.must_create(5)
    for session in (small, large):
        cache.sessions.find(session.id, 1, True, LATER - 1)
    assert cache.create(1, LATER) is None
    cache.must_create(3, LATER)
    assert not cache.has(small)
    assert cache.has(large)


def test_followers_come_before_consumers(cache: Cache) -> None:
    consumer, follower = cache.must_create(9), cache.must_create(1, privileged=True)
    assert cache.create(100, 1.0) is None
    cache.must_create(1, 1.0, privileged=True)
    assert not cache.has(consumer)
    assert cache.has(follower)


def test_consumers_have_room_for_so_many_partitions_and_followers_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "KEPT_PARTITIONS", 10)
    cache = Cache(100)
    first = cache.must_create(6)
    assert cache.create(5) is None
    cache.must_create(50, privileged=True)
    cache.must_create(4)
    assert cache.create(1) is None
    assert cache.sessions.make_room(0, 0.0)
    first.partitions.update(members(7))
    assert not cache.sessions.make_room(0, 0.0)
    cache.sessions.close(first.id)
    second = cache.must_create(6)
    # Sessions of clients that have gone make room, and those in use do not.
    cache.sessions.find(second.id, 1, True, LATER)
    assert cache.create(5, LATER) is None
    cache.must_create(4, LATER)
    assert cache.has(second)


def test_without_slots_nobody_gets_one() -> None:
    assert Cache(0).create() is None


def test_it_is_measured(cache: Cache) -> None:
    for now in (0.0, 0.0, LATER):
        cache.must_create(3, now)
    names = {name.rpartition("name=")[2]: value for name, value in cache.metrics.snapshot().items()}
    assert names == {
        "NumIncrementalFetchSessions": 2,
        "NumIncrementalFetchPartitionsCached": 6,
        "IncrementalFetchSessionEvictionsPerSec": 1,
    }
