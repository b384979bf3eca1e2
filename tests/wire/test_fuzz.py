"""Any bytes give a message or a DecodeError, never another exception, and memory is in proportion to the input."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker_wire.headers import RequestHeader
from pykbroker_wire.primitives import DecodeError
from pykbroker_wire.stored_framing import decode_key, decode_metadata_record, decode_value
from testkit.messages.catalogue import Entry, bombs, cases, make
from testkit.messages.mutations import mutations

SEED = 20_261
# The worst case is arrays of structs of two or three bytes (empty fields and an empty tag section), each of which
# becomes a Python object and a list.
MOST_BYTES_PER_BYTE = 60


def read(item: Entry, version: int, data: bytes) -> None:
    try:
        message, pos = item.cls.decode(memoryview(data), 0, version)
    except DecodeError:
        return
    assert 0 <= pos <= len(data)
    # A message that was read can be written, so readers return only complete ones.
    message.encode(version)


def read_mutated(rng: random.Random, count: int) -> None:
    for item, version in cases():
        whole = make(item, version, "random", rng.randrange(1_000)).encode_bytes(version)
        for data in mutations(rng, whole[:2_000], count):
            read(item, version, data)


@pytest.mark.slow
def test_mutated_messages() -> None:
    read_mutated(random.Random(SEED), 60)


@pytest.mark.long(amount="30 seeds, each message 100 times")
def test_mutated_messages_for_long() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    for _ in range(30):
        read_mutated(random.Random(seed), 100)
        seed += 1


@pytest.mark.slow
def test_random_bytes() -> None:
    rng = random.Random(SEED)
    for item, version in cases():
        for _ in range(60):
            read(item, version, rng.randbytes(rng.randrange(0, 60)))
            # Small numbers get further, because they are plausible lengths.
            read(item, version, bytes(rng.choices((0, 0, 1, 2, 3, 255), k=rng.randrange(0, 60))))


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.binary(max_size=40))
def test_headers_and_stored_records(data: bytes) -> None:
    for attempt in (
        lambda: RequestHeader.decode(memoryview(data)),
        lambda: decode_metadata_record(b"\x01" + data),
        lambda: decode_key("group", data),
        lambda: decode_value("group", 2, data),
    ):
        try:
            attempt()
        except DecodeError:
            continue


def peak_of(item: Entry, data: memoryview, version: int) -> int:
    """The largest amount of memory that was in use during the decoding."""
    tracemalloc.start()
    item.cls.decode(data, 0, version)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


@pytest.mark.slow
def test_memory_in_proportion_to_the_input() -> None:
    """Each array of each message, requests and responses, in every version, with 100 elements of the smallest size. A
    node also reads responses, those of other nodes."""
    worst = (0.0, "")
    for item, version in cases():
        if item.message.kind == "header":
            continue
        for message in bombs(item, version, 100):
            data = memoryview(message.encode_bytes(version))
            ratio = peak_of(item, data, version) / len(data)
            if ratio >= MOST_BYTES_PER_BYTE:
                # A decode takes the same memory each time, but the allocations of other threads count too.
                ratio = min(peak_of(item, data, version) / len(data) for _ in range(3))
            worst = max(worst, (ratio, f"{item} version {version}"))
    assert worst[0] < MOST_BYTES_PER_BYTE, worst
