"""Names that clients choose fill no memory: 30,000 names, short and as long as the protocol allows."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from pykbroker.coordinator import java
from pykbroker.security.authorizer import Operation, Resource
from pykbroker.security.standard_authorizer import MAX_DECISIONS, StandardAuthorizer
from tests.security.askers import AskingClient

MB = 1 << 20
#: Three times as many as the authorizer stores. All of them would take 8 MB.
NAMES = 30_000
LONGEST = 32_767


def held(fill: Callable[[], object]) -> int:
    """Return the bytes that `fill` leaves in memory."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        fill()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_decisions_on_30000_names_principals_and_hosts() -> None:
    authorizer = StandardAuthorizer(1)
    authorizer.complete_initial_load()

    def fill() -> None:
        for number in range(NAMES):
            client = AskingClient(f"User:{number % 1000}", f"10.0.{number % 200}.1")
            assert not authorizer.authorize(client, Operation.READ, Resource.GROUP, f"group-{number}", quiet=True)
            authorizer.authorize_some(client, Operation.WRITE, Resource.TOPIC)

    assert held(fill) < 4 * MB
    assert len(authorizer._decisions) <= MAX_DECISIONS


def test_decisions_on_the_longest_names() -> None:
    authorizer = StandardAuthorizer(1)
    authorizer.complete_initial_load()

    def fill() -> None:
        for number in range(500):
            name = str(number).ljust(LONGEST, "\u4e00")
            assert not authorizer.authorize(AskingClient(), Operation.READ, Resource.GROUP, name, quiet=True)

    assert held(fill) < MB


def test_partitions_of_the_longest_names_of_groups() -> None:
    java._kept_hash.cache_clear()
    for number in range(20):
        java.partition_for(str(number).ljust(LONGEST, "\u4e00"), 50)
    assert java._kept_hash.cache_info().currsize == 0


def test_a_name_has_one_hash_whatever_its_length() -> None:
    for length in (0, 1, 255, 256, 257, LONGEST):
        text = "\u4e00b" * (length // 2) + "a" * (length % 2)
        expected = 0
        for unit in text:
            expected = (31 * expected + ord(unit)) & 0xFFFFFFFF
        assert java.java_hash(text) & 0xFFFFFFFF == expected
