"""The sizes of internal topics in the directories of tests, which are temporary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Keys of a node. A test has few groups, and each partition takes its time at every start, reset and restore. A topic
#: that is there already keeps its partitions.
SMALL_INTERNAL_TOPICS: Final[Mapping[str, str]] = {
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "share.coordinator.state.topic.num.partitions": "6",
}
