"""The table's log as values: what a commit says, whose it is, what it changes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.lake.commits import (
    BATCH,
    CLAIM,
    COMPACTION,
    DataFile,
    NewerNoteError,
    Note,
    Position,
    State,
    decode,
    decode_note,
    transaction_version,
)

positions = st.none() | st.builds(Position, st.integers(0, 10**9), st.text())
states = st.builds(State, st.none() | st.text(), positions, st.booleans())
notes = st.builds(
    Note,
    st.sampled_from([CLAIM, BATCH, COMPACTION]),
    st.text(),
    st.integers(1, 2**20),
    st.text(),
    states,
    st.integers(-1, 10**6),
    st.lists(st.dictionaries(st.text(), st.integers())),
)


def commit(*actions: dict[str, object]) -> str:
    return "\n".join(map(json.dumps, actions))


def add(path: str, *, changes: bool = True) -> dict[str, object]:
    partition = {"topic": "t", "date": None}
    return {"add": {"path": path, "size": 7, "partitionValues": partition, "dataChange": changes, "stats": "{}"}}


@pytest.mark.slow
@given(notes)
def test_a_note_is_read_as_it_was_written(note: Note) -> None:
    assert decode_note(note.encode()) == note


@pytest.mark.parametrize("text", [None, "", "a sentence", "7", "[]", '{"job": "theirs"}'])
def test_what_others_write_into_user_metadata_is_no_note(text: str | None) -> None:
    assert decode_note(text) is None


def test_a_note_of_a_later_version_is_not_guessed_at() -> None:
    with pytest.raises(NewerNoteError):
        decode_note('{"pykbroker-pipeline": 2}')


def test_a_commit_of_a_driver() -> None:
    note = Note(BATCH, "driver", 3, "lake", State("query", Position(5, "plan")), offsets=[{"clicks": {"0": 7}}])
    info = {"timestamp": 1000, "operation": "WRITE", "engineInfo": "Spark", "userMetadata": note.encode()}
    found = decode(9, commit({"commitInfo": info}, {"txn": {"appId": "x", "version": 1}}, add("a"), {"metaData": {}}))
    assert (found.note, found.changes) == (note, None)
    assert found.adds == (DataFile("a", 7, (("date", None), ("topic", "t"))),)
    assert str(found) == "version 9 (WRITE, 1970-01-01 00:00:01 UTC, by Spark)"


@pytest.mark.parametrize(
    ("actions", "changes"),
    [
        ([{"commitInfo": {"operation": "VACUUM END"}}], None),
        ([{"commitInfo": {"operation": "OPTIMIZE"}}, add("a", changes=False)], None),
        ([{"commitInfo": {"operation": "SET TBLPROPERTIES"}}, {"metaData": {}}], None),
        ([{"commitInfo": {"operation": "ADD COLUMNS"}}, {"metaData": {}}], "columns"),
        ([{"metaData": {}}], "columns"),
        ([{"protocol": {}}], "columns"),
        ([add("a")], "rows"),
        ([{"commitInfo": {"operation": "DELETE"}}, {"remove": {"path": "a", "dataChange": True}}], "rows"),
        ([{"remove": {"path": "a"}}], "rows"),
    ],
)
def test_what_another_writer_changes(actions: list[dict[str, object]], changes: str | None) -> None:
    found = decode(1, commit(*actions))
    assert (found.note, found.changes) == (None, changes)


@pytest.mark.parametrize("text", ["{", "[1]", "7", '{"add": {"path": "a"}}', '{"add": 7}'])
def test_a_damaged_commit_is_an_error(text: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        decode(1, text)


@given(st.integers(1, 2**20), st.integers(0, 2**39), st.integers(0, 2**39))
def test_a_claim_is_above_all_batches_of_the_epochs_before(epoch: int, batch: int, other: int) -> None:
    """Delta writes nothing under a version that is not above the last one."""
    assert (
        transaction_version(epoch, batch) < transaction_version(epoch + 1, None) < transaction_version(epoch + 1, other)
    )
    assert transaction_version(epoch + 1, other) < 2**63
