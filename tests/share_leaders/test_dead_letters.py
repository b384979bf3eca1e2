"""The contract between leaders of share partitions and the writer of dead letters."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import pytest

from pykbroker.share_leaders.dead_letters import DeadLetterCause, DeadLetters, DeadLetterWriter, NoDeadLetters

LETTERS = DeadLetters("g", bytes(16), 1, 3, 7, 5, DeadLetterCause.REJECTED)


def test_the_causes_have_the_texts_of_apache_kafka() -> None:
    assert {cause.name: cause.value for cause in DeadLetterCause} == {
        "REJECTED": "Offset rejected by client.",
        "DELIVERY_LIMIT": "Offset delivery count exceeded the threshold.",
    }


def test_letters_are_a_value() -> None:
    assert [field.name for field in fields(DeadLetters)] == [
        "group_id",
        "topic_id",
        "partition",
        "first_offset",
        "last_offset",
        "delivery_count",
        "cause",
    ]
    assert DeadLetters("g", bytes(16), 1, 3, 7, 5, DeadLetterCause.REJECTED) == LETTERS
    assert len({LETTERS, DeadLetters("g", bytes(16), 1, 3, 7, 5, DeadLetterCause.DELIVERY_LIMIT)}) == 2
    with pytest.raises(FrozenInstanceError):
        LETTERS.last_offset = 8  # type: ignore[misc]


def test_a_broker_without_queues_wants_no_letters_and_ends_those_that_come() -> None:
    writer: DeadLetterWriter = NoDeadLetters()
    assert not writer.is_wanted("g")
    promise = writer.write(LETTERS)
    assert promise.done()
    assert promise.result() is None
