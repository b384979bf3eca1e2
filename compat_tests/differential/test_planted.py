"""The differential test leaves nothing out that its tables do not name.

No broker is needed. Each field of each answer, of each stored record and of a batch's header is changed on one side:
then the comparison says so, or a table of masks.py names the field.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.differential import masks
from compat_tests.differential.compare import compare
from compat_tests.differential.plain import Symbols
from compat_tests.differential.session import NOW_MS, Session, Step
from compat_tests.differential.stored import HOMES, OFFSETS, TRANSACTIONS, entries
from pykbroker.api import TABLE
from pykbroker.dispatch.rows import On
from pykbroker_wire.apis import APIS, ApiKey
from pykbroker_wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from pykbroker_wire.primitives import EncodeError, TopLevel
from pykbroker_wire.records.batch import CRC_START, HEADER, HEADER_SIZE, BatchHeader, build_batch
from pykbroker_wire.records.control import end_txn_marker
from pykbroker_wire.records.crc import crc32c
from pykbroker_wire.stored.group import ConsumerGroupMetadataKey, ConsumerGroupMetadataValue
from pykbroker_wire.stored_framing import encode_key, encode_value
from testkit.messages.catalogue import Entry, entry, make
from testkit.messages.catalogue import entries as all_messages

LATER_MS = NOW_MS + 86_400_000
NAMED = {field for own in masks.OWN_VALUES for field in own.fields}
Path = tuple[str | int, ...]


# --- planting ---------------------------------------------------------------------------------------------------------


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every field of a message and every array in it, as attribute names and indexes."""
    if isinstance(value, list):
        yield path
        for index, item in enumerate(value):
            yield from places(item, (*path, index))
    elif hasattr(value, "__slots__") and not isinstance(value, bytes | str | int):
        for name in value.__slots__:
            yield from places(getattr(value, name), (*path, name))
    else:
        yield path


def planted(message: TopLevel, path: Path) -> TopLevel:
    """The message with another value in one place."""
    changed = copy.deepcopy(message)
    owner: Any = changed
    for step in path[:-1]:
        owner = owner[step] if isinstance(step, int) else getattr(owner, step)
    last = path[-1]
    other = another(owner[last] if isinstance(last, int) else getattr(owner, last))
    if isinstance(last, int):
        owner[last] = other
    else:
        setattr(owner, last, other)
    return changed


def another(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value + "x"
        case bytes():
            return bytes([value[0] ^ 1]) + value[1:] if value else b"x"
        case list():
            return value[:-1] if value else None
        case None:
            return "x"
    raise AssertionError(f"what is another {value!r}?")


def dotted(path: Path) -> str:
    return ".".join(step for step in path if isinstance(step, str))


def is_named(api: str, path: Path, value: Any) -> bool:
    """Return True if a table exempts this field, so that its value is not compared as it is."""
    name = [step for step in path if isinstance(step, str)][-1]
    is_uuid = isinstance(value, bytes) and len(value) == 16 and name.endswith("id")  # masks.OWN_ANYWHERE
    return masks.is_masked(api, dotted(path)) or name in NAMED or is_uuid


def at(message: Any, path: Path) -> Any:
    for step in path:
        message = message[step] if isinstance(step, int) else getattr(message, step)
    return message


def noted(api: str, message: TopLevel) -> list[Step]:
    return [Step("step", api, 0, None, Symbols({}, NOW_MS).message(message))]


# --- answers ----------------------------------------------------------------------------------------------------------

SERVED = [APIS[row.key] for row in TABLE if row.on & On.BROKER]


def full(item: Entry, version: int) -> TopLevel:
    """Every field set; records are batches, and APIs such that are served."""
    message = make(item, version, "full")
    for path in places(message):
        if path and path[-1] == "records" and isinstance(at(message, path), bytes):
            at(message, path[:-1]).records = build_batch([(b"k", b"v", (), NOW_MS)])
        elif path and path[-1] == "api_key" and path[0] == "api_keys":
            at(message, path[:-1]).api_key = int(ApiKey.METADATA)
    return message


@pytest.mark.parametrize("api", SERVED, ids=lambda api: str(api.name))
def test_a_difference_in_any_field_of_an_answer_is_found_or_named_by_a_mask(api: Any) -> None:
    item = entry(api.response.__name__)
    tried = 0
    for version in (api.min_version, api.max_version):
        message = full(item, version)
        assert compare(noted(api.name, message), noted(api.name, message)) == []
        for path in places(message):
            found = compare(noted(api.name, message), noted(api.name, planted(message, path)))
            assert found or is_named(api.name, path, at(message, path)), f"version {version}: {dotted(path)}"
            tried += 1
    assert tried


def test_only_the_value_of_a_mask_is_unseen() -> None:
    """A field in the tables is still compared in all that its entry does not exempt."""

    def differs(field: str, one: Any, other: Any) -> bool:
        def steps(value: Any) -> list[Step]:
            return [Step("step", "X", 0, None, Symbols({}, NOW_MS).plain({field: value}))]

        return bool(compare(steps(one), steps(other)))

    for own in masks.OWN_VALUES:
        for field in own.fields:
            for nothing in own.nothing:
                some = "some" if isinstance(nothing, str) else LATER_MS
                assert differs(field, nothing, some), field
            match own.becomes:
                case masks.Becomes.TIME | masks.Becomes.LATE_TIME if own is not masks.MARKER_TIMES:
                    assert not differs(field, LATER_MS, LATER_MS + 1)
                    assert differs(field, LATER_MS, LATER_MS + 10**12)
                    assert differs(field, LATER_MS, 5)
                case masks.Becomes.WORDS | masks.Becomes.CLUSTER:
                    assert not differs(field, "one", "other")
                    assert differs(field, "one", None)
                case masks.Becomes.UUID:
                    assert differs(field, "one", "other")
                    assert not differs(field, "A" * 22, "B" * 22)
    assert not differs("timestamp", LATER_MS, LATER_MS + 1)
    assert differs("timestamp", NOW_MS, NOW_MS + 1), "one of the scripts' own"


def test_an_api_that_pykbroker_advertises_too_much_is_found() -> None:
    def steps(*keys: int) -> list[Step]:
        return [Step("step", "ApiVersions", 0, None, {"api_keys": [{"api_key": key} for key in keys]})]

    not_served = min(set(map(int, APIS)) - {int(row.key) for row in TABLE if row.on & On.BROKER})
    assert compare(steps(3, not_served), steps(3)) == []
    assert compare(steps(3), steps(3, not_served))
    assert compare(steps(3, not_served), steps(3, not_served))
    assert compare(steps(3), steps())


# --- record batches ---------------------------------------------------------------------------------------------------


def stamped(data: bytes, field: str, value: int) -> bytes:
    """The batch with one field of its header changed, and the CRC that belongs to it."""
    header = BatchHeader.parse(data)._replace(**{field: value})
    if field != "crc":
        header = header._replace(crc=crc32c((HEADER.pack(*header) + data[HEADER_SIZE:])[CRC_START:]))
    return HEADER.pack(*header) + data[HEADER_SIZE:]


RECORD = [(b"k", b"v", (), NOW_MS)]
BATCHES = {
    "plain": build_batch(RECORD),
    "of a producer": build_batch(RECORD, producer_id=7, producer_epoch=1, base_sequence=3),
    "marker": end_txn_marker(commit=True, producer_id=7, producer_epoch=1, coordinator_epoch=2, timestamp=LATER_MS),
}
#: Names of header fields whose change is not seen, by the table that says so.
UNSEEN_IN = {
    "plain": set[str](),
    "of a producer": {"producer_id"},
    "marker": {"producer_id", *masks.MARKER_TIMES.fields},
}


def fetched(data: bytes) -> list[Step]:
    partition = PartitionData(partition_index=0, records=data)
    return noted("Fetch", FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])]))


@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("field", BatchHeader._fields)
def test_a_difference_in_any_field_of_a_batch_is_found_or_named(kind: str, field: str) -> None:
    data = BATCHES[kind]
    value = getattr(BatchHeader.parse(data), field)
    found = compare(fetched(data), fetched(stamped(data, field, value + 1)))
    assert bool(found) == (field not in UNSEEN_IN[kind])
    assert UNSEEN_IN[kind] <= NAMED


@pytest.mark.parametrize("kind", BATCHES)
def test_a_difference_in_any_byte_behind_a_batchs_header_is_found(kind: str) -> None:
    data = BATCHES[kind]
    for at_byte in range(HEADER_SIZE, len(data)):
        other = data[:at_byte] + bytes([data[at_byte] ^ 1]) + data[at_byte + 1 :]
        header = BatchHeader.parse(other)
        assert compare(fetched(data), fetched(other)), at_byte
        assert compare(fetched(data), fetched(stamped(other, "attributes", header.attributes))), at_byte


def test_only_kafka_may_cut_the_last_batch_short() -> None:
    data = BATCHES["plain"]
    torn = data + data[:40]
    assert compare(fetched(torn), fetched(data)) == []
    assert compare(fetched(data), fetched(torn))
    for garbage in (b"\xff" * 40, data[:16] + b"\7" + data[17:-1]):
        assert compare(fetched(data + garbage), fetched(data))
        assert compare(fetched(data), fetched(data + garbage))
    assert compare(fetched(data * 2), fetched(data))


def test_a_time_that_no_clock_shows_is_found_in_a_marker() -> None:
    data = BATCHES["marker"]
    for field in masks.MARKER_TIMES.fields:
        assert compare(fetched(data), fetched(stamped(data, field, 5)))


# --- stored records ---------------------------------------------------------------------------------------------------

TOPIC_OF = {home: topic for topic, home in HOMES.items()}
KEYS = {item.message.key: item for item in all_messages() if item.message.name.endswith("Key")}


def stored_steps(topic: str, data: bytes, *, markers: bool = False) -> list[Step]:
    s = Session("script", "localhost:1", {})
    s.know("producer", 7)
    said, _ = entries(s, HOMES[topic], data, 0, markers=markers)
    s.note("stored", {"entries": said}, api=masks.STORED)
    return s.steps


def stored_pairs() -> Iterator[tuple[str, TopLevel, TopLevel, int]]:
    """Topic, key, value, its version: each type in each version."""
    for item in all_messages():
        if item.message.home in TOPIC_OF and item.message.name.endswith("Value"):
            found = [
                key
                for key in all_messages()
                if key.message.home == item.message.home and key.message.name == item.message.name[:-5] + "Key"
            ]
            for version in item.versions if found else ():
                key = make(found[0], 0, "full")
                for owner in ("group", "group_id", "transactional_id"):
                    if hasattr(key, owner):
                        setattr(key, owner, "script.g")
                yield TOPIC_OF[item.message.home], key, make(item, version, "full"), version


def stored_batch(key: bytes, value: bytes | None, headers: tuple[tuple[str, bytes], ...] = ()) -> bytes:
    return build_batch([(key, value, headers, LATER_MS)])


@pytest.mark.slow
def test_a_difference_in_any_field_of_a_stored_record_is_found_or_named() -> None:
    types = set()
    for topic, key, value, version in stored_pairs():
        types.add(type(value).__name__)
        key_bytes, value_bytes = encode_key(key), encode_value(value, version)
        steps = stored_steps(topic, stored_batch(key_bytes, value_bytes))
        assert len(steps[0].answered["entries"]) == 1
        where = f"{type(value).__name__} version {version}"
        for path in places(value):
            try:
                other = encode_value(planted(value, path), version)
            except EncodeError:
                continue  # not in this version
            if other == value_bytes:
                continue  # nor this one, which may be left out
            found = compare(steps, stored_steps(topic, stored_batch(key_bytes, other)))
            api_path = ("entries", "value", type(value).__name__, *path)
            assert found or is_named(masks.STORED, api_path, at(value, path)), f"{where}: {dotted(path)}"
        for path in places(key):
            if path[-1] not in ("group", "group_id", "transactional_id"):
                other = encode_key(planted(key, path))
                found = compare(steps, stored_steps(topic, stored_batch(other, value_bytes)))
                assert found or is_named(masks.STORED, path, at(key, path)), f"{type(key).__name__}: {dotted(path)}"
        assert compare(steps, stored_steps(topic, stored_batch(key_bytes, None))), where
        assert compare(steps, stored_steps(topic, stored_batch(key_bytes, value_bytes, (("h", b"1"),)))), where
    assert {"OffsetCommitValue", "GroupMetadataValue", "TransactionLogValue"} <= types


def test_the_attributes_of_a_stored_record_are_compared_although_they_mean_nothing() -> None:
    topic, key, value, version = next(stored_pairs())
    data = stored_batch(encode_key(key), encode_value(value, version))
    place = HEADER_SIZE + (1 if data[HEADER_SIZE] < 128 else 2)  # after the record's length
    assert data[place] == 0
    other = stamped(data[:place] + b"\1" + data[place + 1 :], "attributes", 0)
    assert any(
        "batch.the same bytes again" in line for line in compare(stored_steps(topic, data), stored_steps(topic, other))
    )


def test_a_tag_that_has_no_name_is_found_in_a_stored_record() -> None:
    key = encode_key(ConsumerGroupMetadataKey(group_id="script.g"))
    value = encode_value(ConsumerGroupMetadataValue(epoch=3), 0)
    assert value[-1:] == b"\0", "the number of tags"
    tagged = value[:-1] + b"\x01\x63\x01\x07"
    found = compare(stored_steps(OFFSETS, stored_batch(key, value)), stored_steps(OFFSETS, stored_batch(key, tagged)))
    assert [line for line in found if line.startswith("    entries")] == [
        "    entries[0].the same bytes again: Kafka true, pykbroker false"
    ]


@pytest.mark.parametrize("field", BatchHeader._fields)
def test_a_difference_in_the_header_around_a_stored_record_is_found_or_named(field: str) -> None:
    _, key, value, version = next(pair for pair in stored_pairs() if pair[0] == TRANSACTIONS)
    data = stored_batch(encode_key(key), encode_value(value, version))
    changed = stamped(data, field, getattr(BatchHeader.parse(data), field) + 1)
    try:
        found = bool(compare(stored_steps(TRANSACTIONS, data), stored_steps(TRANSACTIONS, changed)))
    except ValueError:
        found = True  # no batch, or not these records: the script ends with it
    assert found or masks.is_masked(masks.STORED, f"entries.batch.{field}") or field in NAMED - {"crc"}


def test_records_of_other_scripts_and_markers_not_asked_for_are_what_is_left_out() -> None:
    topic, key, value, version = next(pair for pair in stored_pairs() if hasattr(pair[1], "group_id"))
    key.group_id = "other.g"  # type: ignore[attr-defined]
    other = stored_batch(encode_key(key), encode_value(value, version))
    assert stored_steps(topic, other)[0].answered == {"entries": []}
    marker = BATCHES["marker"]
    assert stored_steps(OFFSETS, marker)[0].answered == {"entries": []}
    steps = stored_steps(OFFSETS, marker, markers=True)
    assert len(steps[0].answered["entries"]) == 1
    for commit, epoch in ((False, 2), (True, 3)):
        changed = end_txn_marker(
            commit=commit, producer_id=7, producer_epoch=1, coordinator_epoch=epoch, timestamp=LATER_MS
        )
        assert compare(steps, stored_steps(OFFSETS, changed, markers=True))
    unknown = end_txn_marker(commit=True, producer_id=8, producer_epoch=1, coordinator_epoch=2, timestamp=LATER_MS)
    assert stored_steps(OFFSETS, unknown, markers=True)[0].answered == {"entries": []}
