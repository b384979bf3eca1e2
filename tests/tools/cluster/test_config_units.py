"""Configurations with units, and the numbers that a cluster reads."""

from __future__ import annotations

import pytest

from pykbroker.config.key_table import BROKER_KEYS, TOPIC_KEYS
from pykbroker.config.kinds import Type
from pykbroker.tools.cluster.config_units import plain_number, with_plain_numbers


@pytest.mark.parametrize(
    ("key", "value", "number"),
    [
        ("retention.ms", "7d", "604800000"),
        ("retention.ms", "1h30m", "5400000"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "60000", "60000"),
        ("retention.ms", "soon", "soon"),
        ("segment.bytes", "1GiB", "1073741824"),
        ("segment.bytes", "1GB", "1000000000"),
        ("max.message.bytes", "512 kib", "524288"),
        ("max.message.bytes", "5b", "5"),
        ("log.cleaner.dedupe.buffer.size", "128MiB", "134217728"),
        ("log.retention.hours", "7d", "168"),
        # An hour and a half is no whole number of hours: the broker refuses it.
        ("log.retention.hours", "90m", "90m"),
        ("log.retention.minutes", "90m", "90"),
        ("interval.ms", "30s", "30000"),
        ("min.insync.replicas", "2m", "2m"),
        ("cleanup.policy", "compact", "compact"),
        ("leader.replication.throttled.replicas", "0:1", "0:1"),
    ],
)
def test_units(key: str, value: str, number: str) -> None:
    assert plain_number(key, value) == number
    assert with_plain_numbers({key: value}) == {key: number}


def test_no_key_that_takes_a_text_is_changed() -> None:
    for name, key in {**TOPIC_KEYS, **BROKER_KEYS}.items():
        changed = plain_number(name, "7d") != "7d" or plain_number(name, "1GiB") != "1GiB"
        assert not changed or key.type in (Type.INT, Type.LONG, Type.SHORT, Type.DOUBLE), name
