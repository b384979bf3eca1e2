"""Lines in the form of Java's producer."""

from __future__ import annotations

import pytest

from compat_tests.exactly_once.producer_logs import disagreements


def again(error: str, partition: str = "t-1") -> str:
    return (
        f"Got error produce response with correlation id 7 on topic-partition {partition}, retrying (9 attempts left). "
        f"Error: {error}"
    )


REFUSED, OUT_OF_ORDER = again("CONCURRENT_TRANSACTIONS"), again("OUT_OF_ORDER_SEQUENCE_NUMBER")
FATAL = (
    "org.apache.kafka.common.errors.OutOfOrderSequenceException: The broker received an out of order sequence number"
)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([REFUSED, OUT_OF_ORDER, OUT_OF_ORDER, again("NOT_LEADER_OR_FOLLOWER")], []),
        ([OUT_OF_ORDER, OUT_OF_ORDER], [OUT_OF_ORDER, OUT_OF_ORDER]),
        ([again("CONCURRENT_TRANSACTIONS", "t-2"), OUT_OF_ORDER], [OUT_OF_ORDER]),
        ([REFUSED, again("NOT_LEADER_OR_FOLLOWER"), OUT_OF_ORDER], [OUT_OF_ORDER]),
        ([REFUSED, OUT_OF_ORDER, FATAL], [FATAL]),
        ([REFUSED, again("INVALID_TXN_STATE")], [again("INVALID_TXN_STATE")]),
    ],
)
def test_only_what_a_refused_first_batch_explains_is_left_out(lines: list[str], found: list[str]) -> None:
    assert disagreements("\n".join(lines)) == found
