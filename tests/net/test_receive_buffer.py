"""The bytes that are not dispatched yet, and the times that count for them, without a connection and a clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pykbroker.net.receive_buffer import SIZE, ReceiveBuffer

SHARED = memoryview(bytearray(64))


def buffer(frame_bytes: int = 100_000) -> ReceiveBuffer:
    return ReceiveBuffer(frame_bytes, 10.0)


def put(received: ReceiveBuffer, data: bytes, now: float) -> tuple[memoryview, int]:
    """Receive `data` into the connection's own memory, as a transport does."""
    assert received.view is not None
    received.view[received.filled : received.filled + len(data)] = data
    return received.add(len(data), SHARED, now)


def test_a_connection_between_two_frames_has_no_memory_of_its_own() -> None:
    received = buffer()
    view, end = received.add(20, SHARED, 11.0)
    assert view is SHARED
    assert end == 20
    assert received.memory_bytes == 0
    assert received.filled == 0
    assert received.release() == 0


def test_the_rest_of_a_read_is_kept_in_own_memory() -> None:
    received = buffer()
    SHARED[:10] = b"0123456789"
    view, end = received.add(10, SHARED, 11.0)
    taken = received.keep(view, 7, end, 11.0)
    SHARED[:10] = b"overwrites"
    assert taken == received.memory_bytes == 4096
    view, end = put(received, b"abc", 12.0)
    assert bytes(view[:end]) == b"789abc"
    # A part of it is a whole frame now: the rest moves to the front, and no more memory is taken.
    assert received.keep(view, 2, end, 12.0) == 0
    assert received.view is not None
    assert bytes(received.view[: received.filled]) == b"9abc"
    assert received.release() == 4096
    assert received.view is None


@given(st.integers(1, 100_000), st.binary(min_size=4, max_size=30_000))
def test_memory_grows_with_the_bytes_and_not_with_the_size_of_the_frame(size: int, data: bytes) -> None:
    received = buffer()
    data = SIZE.pack(size) + data[: size - 1]
    received.view = memoryview(bytearray(8))
    taken = 8
    for index in range(0, len(data), 1000):
        piece = data[index : index + 1000]
        while piece:
            room = received.memory_bytes - received.filled
            if not room:
                taken += received.grow()
                continue
            put(received, piece[:room], 11.0)
            piece = piece[room:]
    assert taken == received.memory_bytes
    assert received.view is not None
    assert bytes(received.view[: received.filled]) == data
    assert received.memory_bytes <= max(8192, 2 * len(data))


def test_the_last_growth_is_for_the_frame_and_no_more() -> None:
    received = buffer()
    received.view = memoryview(bytearray(16_384))
    put(received, SIZE.pack(20_000) + bytes(16_380), 11.0)
    assert received.grow() == 20_004 - 16_384


def test_a_frame_is_late_from_its_first_byte_on() -> None:
    received = buffer()
    assert not received.is_late(99.0, 5.0)
    received.keep(SHARED, 0, 3, 20.0)
    put(received, b"x", 24.0)
    assert not received.is_late(25.0, 5.0)
    assert received.is_late(25.5, 5.0)
    # The frame is dispatched and the memory stays: the time of the next frame begins with its own first byte.
    received.filled = 0
    assert not received.is_late(99.0, 5.0)
    put(received, b"y", 90.0)
    assert not received.is_late(95.0, 5.0)
    assert received.is_late(95.5, 5.0)
    # The end of that frame and the begin of the next one come together: the next one has its whole time too.
    put(received, b"end and begin", 95.5)
    assert received.view is not None
    received.keep(received.view, received.filled - 5, received.filled, 95.5)
    assert not received.is_late(100.5, 5.0)
    assert received.is_late(101.0, 5.0)


def test_after_a_pause_the_bytes_come_again_and_the_frame_has_its_whole_time() -> None:
    received = buffer()
    assert received.take_again(11.0) is None
    received.keep(SHARED, 0, 5, 20.0)
    taken = received.take_again(60.0)
    assert taken is not None
    view, end = taken
    assert view is received.view
    assert end == 5
    assert received.filled == 0
    assert received.keep(view, 0, end, 60.0) == 0
    assert not received.is_late(65.0, 5.0)
    assert received.turn_began == 60.0


def test_a_read_that_fills_the_memory_goes_on_in_the_same_turn() -> None:
    received = buffer()
    received.add(len(SHARED), SHARED, 11.0)
    received.add(3, SHARED, 12.0)
    assert received.turn_began == 11.0
    received.add(3, SHARED, 13.0)
    assert received.turn_began == 13.0
