"""The content of a topic, per partition, as a consumer of one isolation level sees it."""

from __future__ import annotations

from collections import defaultdict

from compat_tests.python.confluent_client import ConfluentClient

#: The rest between two readings of a topic by a test that waits for its end: each reads all of it.
EVERY_S = 0.5


def values(bootstrap: str, topic: str, *, committed: bool = True) -> dict[int, list[bytes]]:
    """Return the values of each partition by their offsets, to the last stable offset or to the end."""
    return {number: [value for _, value in found] for number, found in placed(bootstrap, topic, committed).items()}


def placed(bootstrap: str, topic: str, committed: bool = True) -> dict[int, list[tuple[int, bytes]]]:
    """Return the same with the offsets."""
    read: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for record in ConfluentClient().consume(bootstrap, topic, committed=committed):
        assert record.offset is not None
        read[record.partition].append((record.offset, record.value or b""))
    return read
