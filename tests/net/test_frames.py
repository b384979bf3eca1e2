"""Whatever the chunks are: the same frames, in memory that grows with the received bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker.net.frames import FIRST_BYTES, PIECE_BYTES, Frames
from pykbroker_wire.primitives import DecodeError

MOST = 512 * 1024 * 1024


def feed(frames: Frames, data: bytes, cuts: list[int] | None = None) -> list[bytes]:
    """Pass bytes as a transport does: no more than there is space, and no more than has arrived."""
    found: list[bytes] = []
    position = turn = 0
    while position < len(data):
        space = frames.space()
        assert len(space)
        count = min(len(space), len(data) - position, cuts[turn % len(cuts)] if cuts else MOST)
        space[:count] = data[position : position + count]
        found += map(bytes, frames.received(count))
        position += count
        turn += 1
    return found


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def held_bytes(frames: Frames) -> int:
    return len(frames._space) + sum(map(len, frames._pieces))


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.integers(4, 200),
            st.integers(FIRST_BYTES - 20, FIRST_BYTES + 20),
            st.integers(2 * FIRST_BYTES, 8 * FIRST_BYTES),
        ),
        max_size=8,
    ),
    st.lists(st.one_of(st.integers(1, 9), st.integers(10, 50_000)), min_size=1, max_size=20),
)
def test_any_chunking_gives_the_same_frames(sizes: list[int], cuts: list[int]) -> None:
    bodies = [bytes([number]) * size for number, size in enumerate(sizes)]
    if min(cuts) < 10 and sum(sizes) > 20_000:
        # To avoid a hundred thousand turns: small chunks first, then all of the rest.
        cuts = [*cuts, *cuts, 1 << 20]
    frames = Frames(MOST)
    assert feed(frames, b"".join(map(framed, bodies)), cuts) == bodies
    assert held_bytes(frames) == FIRST_BYTES


def test_frames_stay_as_they_are_when_more_arrives() -> None:
    frames = Frames(MOST)
    space = frames.space()
    first = framed(b"first")
    space[: len(first)] = first
    (kept,) = frames.received(len(first))
    feed(frames, framed(b"x" * FIRST_BYTES) * 3)
    assert bytes(kept) == b"first"


def test_memory_follows_the_bytes_received_not_the_size_declared() -> None:
    frames = Frames(MOST)
    feed(frames, MOST.to_bytes(4, "big"))
    received = 4
    for _ in range(200):
        feed(frames, b"x" * 50_000)
        received += 50_000
        assert held_bytes(frames) <= 2 * received + FIRST_BYTES
        assert held_bytes(frames) <= received + PIECE_BYTES


@pytest.mark.parametrize("size", [-1, 0, 3, MOST + 1, 2**31 - 1])
def test_a_size_that_cannot_be_raises(size: int) -> None:
    with pytest.raises(DecodeError, match=str(size)):
        feed(Frames(MOST), size.to_bytes(4, "big", signed=True))
