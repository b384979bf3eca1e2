"""What the comparison does not see: each line names one field of one API, and why. At most 30.

An error code, a default, and null versus empty are never masked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

LIMIT = 30


@dataclass(frozen=True, slots=True)
class Mask:
    """`field` is a path without indexes: topics.partitions.high_watermark. Only its presence is compared.

    sort_by: the field is an array whose order means nothing; it is compared, in the order of this member.
    without: the field is an array, compared without the entries whose first member is one of these.
    """

    api: str
    field: str
    reason: str
    sort_by: str = ""
    without: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        if self.without:
            return f"order; entries {', '.join(self.without)}"
        return "order" if self.sort_by else "value"


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
        without=("eligible.leader.replicas.version", "group.version", "share.version", "streams.version", "transaction.version"),
    ),
    Mask("DescribeQuorum", "topics.partitions.high_watermark", _LOG),
    Mask("DescribeQuorum", "topics.partitions.current_voters.log_end_offset", _LOG),
    Mask("DescribeUserScramCredentials", "results", _HASH_MAP, sort_by="user"),
    Mask("DescribeLogDirs", "results.usable_bytes", "the disk has a life of its own"),
    Mask("DescribeLogDirs", "results.topics", _HASH_MAP, sort_by="name"),
    Mask("DescribeLogDirs", "results.topics.partitions", _HASH_MAP, sort_by="partition_index"),
    Mask("DescribeConfigs", "results.configs", _HASH_MAP, sort_by="name"),
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
            items[:] = sorted((item for item in items if item[mask.sort_by] not in mask.without), key=lambda item: str(item[mask.sort_by]))
