"""Records as a consumer has them, and strategies for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st


@dataclass(slots=True, frozen=True)
class Read:
    topic: str = "t"
    partition: int = 0
    offset: int = 0
    timestamp: int = 1_700_000_000_000
    timestamp_type: int | None = 0
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


#: any bytes, and often such as are difficult for JSON and delimiters
data = st.one_of(st.none(), st.binary(max_size=20), st.text(max_size=20).map(str.encode), st.just(b"\xff\n"))
#: UTF-8 has no lone surrogates
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
records = st.builds(
    Read,
    topic=st.text("abc.-_", min_size=1, max_size=9),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    timestamp=st.one_of(st.just(-1), st.integers(0, 2**63 - 1)),
    timestamp_type=st.sampled_from([0, 1, None]),
    key=data,
    value=data,
    headers=st.lists(st.tuples(names, data), max_size=4),
)
