"""The text of a share partition's key, as FindCoordinator carries it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.coordinator.java import partition_for
from pykbroker.coordinator.share.share_partition_key import SharePartitionKey, parse_share_partition_key

TOPIC = bytes(range(16))
TEXT = "AAECAwQFBgcICQoLDA0ODw"

keys = st.builds(
    SharePartitionKey,
    st.text(min_size=1).filter(lambda text: bool(text.strip("".join(map(chr, range(0x21)))))),
    st.binary(min_size=16, max_size=16),
    st.integers(-(2**31), 2**31 - 1),
)


@given(keys)
def test_each_key_is_found_again_in_its_text(key: SharePartitionKey) -> None:
    assert parse_share_partition_key(str(key)) == key
    assert key.state_partition(50) == partition_for(str(key), 50)


@pytest.mark.parametrize(
    ("text", "group"),
    [
        (f"g:{TEXT}:3", "g"),
        # The key is read from the right.
        (f"a:b:c:{TEXT}:3", "a:b:c"),
        (f":a:{TEXT}:3", ":a"),
        # Apache Kafka takes these spellings of the same key.
        (f"g:{TEXT}==:3", "g"),
        (f"g:{TEXT}:+3", "g"),
        (f"g:{TEXT}:003", "g"),
        (f"g:{TEXT}:3::", "g"),
    ],
)
def test_spellings_of_one_key(text: str, group: str) -> None:
    key = SharePartitionKey(group, TOPIC, 3)
    assert parse_share_partition_key(text) == key
    assert str(key) == f"{group}:{TEXT}:3"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "g",
        f"{TEXT}:3",
        f":{TEXT}:3",
        f" \t:{TEXT}:3",
        "g:topic:3",
        f"g:{TEXT[:-1]}:3",
        f"g:{TEXT}:three",
        f"g:{TEXT}:",
        f"g:{TEXT}: 3",
        f"g:{TEXT}:1_000",
        f"g:{TEXT}:2147483648",
    ],
)
def test_what_is_no_key(text: str) -> None:
    with pytest.raises(ValueError):
        parse_share_partition_key(text)


def test_the_text_of_a_key_is_apache_kafkas() -> None:
    key = SharePartitionKey("group:a", bytes(range(240, 256)), 12)
    assert str(key) == "group:a:8PHy8_T19vf4-fr7_P3-_w:12"
