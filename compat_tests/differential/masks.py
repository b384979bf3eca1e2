"""What the comparison does not see: each line names one field of one API, and why. At most 30.

An error code, a default, and null versus empty are never masked.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

LIMIT = 30


@dataclass(frozen=True, slots=True)
class Mask:
    """`field` is a path without indexes: topics.partitions.high_watermark. Only its presence is compared.

    sort_by: the field is an array whose order means nothing; it is compared in the order of this member (a+b: of two).
    merge: entries of the same name are one; this array of theirs is put together.
    deep: the arrays inside have no order either.
    without: compared without the entries for which this member is one of these (x.*: all that begin with x).
    """

    api: str
    field: str
    reason: str
    sort_by: str = ""
    without: tuple[str, ...] = ()
    merge: str = ""
    deep: bool = False

    @property
    def what(self) -> str:
        if self.without:
            return f"order; entries {', '.join(self.without)}"
        return f"order{', also inside' if self.deep else ''}" if self.sort_by else "value"


_HASH_MAP = "the order in which a hash map is walked"
_LOG = "an offset of the metadata log, which has other records"

MASKS: tuple[Mask, ...] = (
    Mask("ApiVersions", "finalized_features_epoch", _LOG),
    Mask("ApiVersions", "finalized_features", _HASH_MAP, sort_by="name"),
    Mask(
        "ApiVersions",
        "supported_features",
        f"{_HASH_MAP}; what is not served is not supported",
        sort_by="name",
        without=(
            "share.version",
            "streams.version",
        ),
    ),
    Mask("DescribeQuorum", "topics.partitions.leader_epoch", "a node on a busy machine may elect itself again"),
    Mask("DescribeQuorum", "topics.partitions.high_watermark", _LOG),
    Mask("DescribeQuorum", "topics.partitions.current_voters.log_end_offset", _LOG),
    Mask("DescribeUserScramCredentials", "results", _HASH_MAP, sort_by="user"),
    Mask("DescribeLogDirs", "results.usable_bytes", "the disk has a life of its own"),
    Mask("DescribeLogDirs", "results.topics", _HASH_MAP, sort_by="name", deep=True),
    Mask("DescribeConfigs", "results.configs", f"{_HASH_MAP}; our own keys", sort_by="name", without=("pykbroker.*",)),
    Mask("Metadata", "topics", _HASH_MAP, sort_by="name+topic_id"),
    Mask("DeleteTopics", "responses", "Kafka shuffles it", sort_by="name"),
    Mask("DeleteRecords", "topics", _HASH_MAP, sort_by="name", deep=True),
    Mask("Produce", "responses.partition_responses", _HASH_MAP, sort_by="index"),
    Mask(
        "Fetch", "responses", "Kafka has what it refuses behind the rest", sort_by="topic+topic_id", merge="partitions"
    ),
    Mask("Fetch", "responses.partitions", "Kafka has what it refuses behind the rest", sort_by="partition_index"),
    Mask(
        "Fetch",
        "responses.partitions.records",
        "Kafka fills an answer up with a part of the next batch, which clients throw away; we end with a whole one",
        sort_by="base_offset",
        without=("torn",),
    ),
    Mask("ListOffsets", "topics", _HASH_MAP, sort_by="name", deep=True),
    Mask("JoinGroup", "members", _HASH_MAP, sort_by="member_id"),
    Mask("OffsetFetch", "topics", _HASH_MAP, sort_by="name"),
    Mask("OffsetFetch", "groups.topics", _HASH_MAP, sort_by="name+topic_id"),
    Mask("DescribeGroups", "groups", _HASH_MAP, sort_by="group_id", deep=True),
    Mask("ListGroups", "groups", _HASH_MAP, sort_by="group_id"),
    Mask("ConsumerGroupHeartbeat", "assignment.topic_partitions", _HASH_MAP, sort_by="topic_id", deep=True),
    Mask("ConsumerGroupDescribe", "groups", _HASH_MAP, sort_by="group_id", deep=True),
    Mask("AddPartitionsToTxn", "results_by_topic_v3_and_below", _HASH_MAP, sort_by="name", deep=True),
    Mask("AddPartitionsToTxn", "results_by_transaction.topic_results", _HASH_MAP, sort_by="name", deep=True),
    Mask("DescribeTransactions", "transaction_states.topics", _HASH_MAP, sort_by="topic", deep=True),
    Mask("DescribeProducers", "topics.partitions.active_producers", _HASH_MAP, sort_by="producer_id"),
    Mask("ListTransactions", "transaction_states", _HASH_MAP, sort_by="transactional_id"),
)

_INDEX = re.compile(r"\[\d+\]")


def is_masked(api: str, path: str) -> bool:
    bare = _INDEX.sub("", path)
    return any(mask.api == api and mask.field == bare and not mask.sort_by for mask in MASKS)


def arrange(api: str, answer: Any) -> None:
    """Bring arrays without an order into one, in place."""
    for mask in MASKS:
        if mask.api == api and mask.sort_by:
            _arrange(answer, mask.field.split("."), mask)


def _arrange(value: Any, path: list[str], mask: Mask) -> None:
    if isinstance(value, list):
        for item in value:
            _arrange(item, path, mask)
    elif isinstance(value, dict) and path[0] in value:
        items = value[path[0]]
        if len(path) > 1:
            _arrange(items, path[1:], mask)
        elif items:
            members = mask.sort_by.split("+")
            if mask.deep:
                for item in items:
                    sort_inside(item)
            if mask.merge:
                one_each: dict[tuple[str, ...], Any] = {}
                for item in items:
                    name = tuple(str(item[member]) for member in members)
                    if name in one_each:
                        one_each[name][mask.merge] += item[mask.merge]
                    else:
                        one_each[name] = item
                items[:] = one_each.values()
            items[:] = sorted(
                (item for item in items if not _is_left_out(str(item[members[0]]), mask)),
                key=lambda item: [str(item[name]) for name in members],
            )


def sort_inside(value: Any) -> None:
    """All arrays in `value`, by what is in them."""
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        sort_inside(item)
    if isinstance(value, list):
        value.sort(key=lambda item: json.dumps(item, sort_keys=True))


def _is_left_out(value: str, mask: Mask) -> bool:
    return any(fnmatchcase(value, pattern) for pattern in mask.without)
