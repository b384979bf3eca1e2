"""The exceptions of the comparison with their reasons: three tables, which docs.py prints. There are no other
exceptions.

MASKS are fields of one API's answers, at most 36, and STORED_MASKS the same for the records that stored.py reads from
the coordinators' topics. OWN_VALUES are fields, of all APIs and records, whose values a node generates. LeftOut are
whole entries.

An error code, a default, and null versus empty are never masked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Any

from pykbroker.api import TABLE
from pykbroker.dispatch.rows import On
from pykbroker_wire.apis import APIS

LIMIT = 36
KAFKA, PYKBROKER = "Kafka", "pykbroker"
STORED = "stored records"
"""The API, so to speak, of what stored.py notes."""


@dataclass(frozen=True, slots=True)
class Mask:
    """`field` is a path without indexes: topics.partitions.high_watermark. Only its presence is compared.

    * `sort_by`: the field is an array whose order means nothing; it is compared in the order of this member, or of two
      (a+b).
    * `within`: only neighbours that are equal in this member have no order.
    * `merge`: entries of the same name are one; this array of theirs is put together.
    * `deep`: the arrays inside have no order either.
    * `without`: compared without the entries whose `member` is one of these (x.*: all that begin with x), which only
      the side `of` may have.
    """

    api: str
    field: str
    reason: str
    sort_by: str = ""
    without: tuple[str, ...] = ()
    member: str = ""
    of: str = ""
    merge: str = ""
    deep: bool = False
    within: str = ""

    @property
    def is_of_value(self) -> bool:
        return not self.sort_by and not self.without

    @property
    def what(self) -> str:
        said = ["value"] if self.is_of_value else []
        if self.sort_by:
            neighbours = f" of neighbours of one {self.within}" if self.within else ""
            said.append(f"order{neighbours}{', also inside' if self.deep else ''}")
        if self.without:
            said.append(f"entries {', '.join(self.without)} of {self.of}")
        return "; ".join(said)


class Becomes(Enum):
    """The form in which a value that a node generates is compared. An id becomes a symbol: the same id must occur in
    the same places, but its value does not matter."""

    CLUSTER = "cluster"
    PRODUCER = "producer"
    SESSION = "session"
    HASH = "hash"
    PORT = "port"
    UUID = "uuid"
    TIME = "a time"
    LATE_TIME = "a time later than the scripts' own"
    WORDS = "some text"
    VALIDITY = "right or wrong"


@dataclass(frozen=True, slots=True)
class OwnValue:
    """Fields, of all answers and records, whose values a node generates.

    `nothing`: values that mean "none", and are compared as they are. `type`: values of other types are compared as they
    are.
    """

    becomes: Becomes
    fields: tuple[str, ...]
    reason: str
    nothing: tuple[int | str, ...] = ()
    type: type = int


class LeftOut(Enum):
    """Whole entries that are not compared, with the reason."""

    OTHER_SCRIPTS = (
        "topics, groups, transactions and stored records of other scripts and of the nodes themselves",
        "a script compares what it made; what else is there depends on the scripts before it",
    )
    NOT_SERVED = (
        "APIs that pykbroker does not serve, in Kafka's answer to ApiVersions",
        "pykbroker may not advertise them: their absence is the statement",
    )
    MARKERS = (
        "markers in the coordinators' topics, where a script does not ask for them, and those of producers that it "
        "never named",
        "a marker comes when it comes: only behind the end of a transaction is it certain to be there",
    )

    @property
    def what(self) -> str:
        return self.value[0]

    @property
    def reason(self) -> str:
        return self.value[1]


_HASH_MAP = "the order in which a hash map is walked"
_LOG = "an offset of the metadata log, which has other records"
_BATCHES = "how records are put into batches, and so at which offset one is, is the node's own"

MASKS: tuple[Mask, ...] = (
    Mask("ApiVersions", "finalized_features_epoch", _LOG),
    Mask("ApiVersions", "finalized_features", _HASH_MAP, sort_by="name"),
    Mask(
        "ApiVersions",
        "supported_features",
        f"{_HASH_MAP}; what is not served is not supported",
        sort_by="name",
        without=("streams.version",),
        member="name",
        of=KAFKA,
    ),
    Mask("DescribeQuorum", "topics.partitions.leader_epoch", "a node on a busy machine may elect itself again"),
    Mask("DescribeQuorum", "topics.partitions.high_watermark", _LOG),
    Mask("DescribeQuorum", "topics.partitions.current_voters.log_end_offset", _LOG),
    Mask("DescribeUserScramCredentials", "results", _HASH_MAP, sort_by="user"),
    Mask("DescribeLogDirs", "results.usable_bytes", "the disk has a life of its own"),
    Mask("DescribeLogDirs", "results.topics", _HASH_MAP, sort_by="name", deep=True),
    Mask(
        "DescribeConfigs",
        "results.configs",
        f"{_HASH_MAP}; our own keys",
        sort_by="name",
        without=("pykbroker.*",),
        member="name",
        of=PYKBROKER,
    ),
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
        without=("torn",),
        member="base_offset",
        of=KAFKA,
    ),
    Mask("ListOffsets", "topics", _HASH_MAP, sort_by="name", deep=True),
    Mask("JoinGroup", "members", _HASH_MAP, sort_by="member_id"),
    Mask("OffsetFetch", "topics", _HASH_MAP, sort_by="name"),
    Mask("OffsetFetch", "groups.topics", _HASH_MAP, sort_by="name+topic_id"),
    Mask("DescribeGroups", "groups", _HASH_MAP, sort_by="group_id", deep=True),
    Mask("ListGroups", "groups", _HASH_MAP, sort_by="group_id"),
    Mask("ConsumerGroupHeartbeat", "assignment.topic_partitions", _HASH_MAP, sort_by="topic_id", deep=True),
    Mask("ConsumerGroupDescribe", "groups", _HASH_MAP, sort_by="group_id", deep=True),
    Mask("ShareGroupHeartbeat", "assignment.topic_partitions", _HASH_MAP, sort_by="topic_id", deep=True),
    Mask("ShareGroupDescribe", "groups", _HASH_MAP, sort_by="group_id", deep=True),
    Mask(
        "AlterShareGroupOffsets",
        "responses",
        "Kafka has what it refuses before the rest",
        sort_by="topic_name",
        deep=True,
    ),
    Mask("DescribeShareGroupOffsets", "groups.topics", _HASH_MAP, sort_by="topic_name", deep=True),
    Mask("AddPartitionsToTxn", "results_by_topic_v3_and_below", _HASH_MAP, sort_by="name", deep=True),
    Mask("AddPartitionsToTxn", "results_by_transaction.topic_results", _HASH_MAP, sort_by="name", deep=True),
    Mask("DescribeTransactions", "transaction_states.topics", _HASH_MAP, sort_by="topic", deep=True),
    Mask("DescribeProducers", "topics.partitions.active_producers", _HASH_MAP, sort_by="producer_id"),
    Mask("ListTransactions", "transaction_states", _HASH_MAP, sort_by="transactional_id"),
)

STORED_MASKS: tuple[Mask, ...] = (
    Mask(STORED, "entries.offset", _BATCHES),
    *(
        Mask(STORED, f"entries.batch.{field}", _BATCHES)
        for field in (
            "base_offset",
            "batch_length",
            "last_offset_delta",
            "base_timestamp",
            "max_timestamp",
            "record_count",
        )
    ),
    Mask(STORED, "entries.value.ConsumerGroupRegularExpressionValue.version", _LOG),
    Mask(
        STORED,
        "entries",
        f"{_HASH_MAP}, of members and of sets inside a record",
        sort_by="name",
        within="type",
        deep=True,
    ),
)

CRC = OwnValue(Becomes.VALIDITY, ("crc",), "is over a producer id or the node's clock; of other batches it is compared")
MARKER_TIMES = OwnValue(
    Becomes.TIME, ("base_timestamp", "max_timestamp"), "the node's clock, in markers; in other batches it is compared"
)
OWN_VALUES: tuple[OwnValue, ...] = (
    OwnValue(Becomes.CLUSTER, ("cluster_id",), "made when the directory is formatted", ("",), str),
    OwnValue(
        Becomes.PRODUCER,
        (
            "producer_id",
            "ongoing_txn_producer_id",
            "producer_id_filters",
            "v3_and_below_producer_id",
            "previous_producer_id",
            "next_producer_id",
        ),
        "handed out in blocks",
        (-1,),
    ),
    OwnValue(Becomes.SESSION, ("session_id",), "a random number", (0,)),
    OwnValue(Becomes.HASH, ("metadata_hash",), "is over topic ids", (0,)),
    OwnValue(Becomes.PORT, ("port",), "each node has its own", (0, -1)),
    OwnValue(Becomes.UUID, ("member_id", "leader"), "random, where it is a text of 22 characters", (), str),
    OwnValue(
        Becomes.TIME,
        (
            "last_fetch_timestamp",
            "last_caught_up_timestamp",
            "log_append_time_ms",
            "transaction_start_time_ms",
            "last_timestamp",
            "transaction_start_timestamp_ms",
            "transaction_last_update_timestamp_ms",
            "commit_timestamp",
            "expire_timestamp",
            "current_state_timestamp",
            "assignment_timestamp",
            "timestamp_ms",
        ),
        "the node's clock; what is more than nine days away is compared",
        (-1, 0),
    ),
    OwnValue(Becomes.LATE_TIME, ("timestamp",), "the node's clock, in markers and stored records"),
    MARKER_TIMES,
    CRC,
    OwnValue(
        Becomes.WORDS,
        ("error_message", "acknowledge_error_message", "batch_index_error_message", "documentation"),
        "each has its own; what is null or empty is so on both sides",
        ("",),
        str,
    ),
)
#: Found by more than the name of a field.
OWN_ANYWHERE = (
    "uuids (16 bytes in a field whose name ends with id, or written out in a text), the node's addresses and its "
    "directories"
)


_NOT_SERVED = frozenset(int(key) for key in APIS) - frozenset(int(row.key) for row in TABLE if row.on & On.BROKER)
_INDEX = re.compile(r"\[\d+\]")


def is_masked(api: str, path: str) -> bool:
    bare = _INDEX.sub("", path)
    return any(mask.field == bare and mask.is_of_value for mask in _masks_of(api))


def arrange(api: str, answer: Any, side: str) -> None:
    """Sort arrays without an order, in place, and remove the entries that only this side may have."""
    for mask in _masks_of(api):
        if not mask.is_of_value:
            _arrange(answer, mask.field.split("."), mask, side)


def _masks_of(api: str) -> Iterator[Mask]:
    return (mask for mask in (*MASKS, *STORED_MASKS) if mask.api == api)


def _arrange(value: Any, path: list[str], mask: Mask, side: str) -> None:
    if isinstance(value, list):
        for item in value:
            _arrange(item, path, mask, side)
    elif isinstance(value, dict) and path[0] in value:
        items = value[path[0]]
        if len(path) > 1:
            _arrange(items, path[1:], mask, side)
        elif items:
            if mask.deep:
                for item in items:
                    sort_inside(item)
            if mask.of == side:
                items[:] = [item for item in items if not _is_left_out(str(item[mask.member]), mask)]
            if mask.sort_by:
                items[:] = _sorted(items, mask)


def _sorted(items: list[Any], mask: Mask) -> list[Any]:
    members = mask.sort_by.split("+")
    if mask.merge:
        one_each: dict[tuple[str, ...], Any] = {}
        for item in items:
            name = tuple(str(item[member]) for member in members)
            if name in one_each:
                one_each[name][mask.merge] += item[mask.merge]
            else:
                one_each[name] = item
        items = list(one_each.values())
    return [
        item
        for _, run in groupby(items, key=lambda item: item[mask.within] if mask.within else None)
        for item in sorted(run, key=lambda item: [str(item[name]) for name in members])
    ]


def drop_not_served(answer: Any, side: str) -> None:
    """Remove the APIs of LeftOut.NOT_SERVED."""
    if side == KAFKA and isinstance(answer, dict):
        answer["api_keys"] = [row for row in answer["api_keys"] if row["api_key"] not in _NOT_SERVED]


def sort_inside(value: Any) -> None:
    """Sort all arrays in `value` by their content."""
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        sort_inside(item)
    if isinstance(value, list):
        value.sort(key=lambda item: json.dumps(item, sort_keys=True))


def _is_left_out(value: str, mask: Mask) -> bool:
    return any(fnmatchcase(value, pattern) for pattern in mask.without)
