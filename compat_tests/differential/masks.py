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
    """`field` is a path without indexes: topics.partitions.high_watermark. With `sort_by` the field is an array whose order
    means nothing, and it is compared in the order of that member; otherwise only its presence is compared."""

    api: str
    field: str
    reason: str
    sort_by: str = ""


MASKS: tuple[Mask, ...] = ()

_INDEX = re.compile(r"\[\d+\]")


def is_masked(api: str, path: str) -> bool:
    bare = _INDEX.sub("", path)
    return any(mask.api == api and mask.field == bare and not mask.sort_by for mask in MASKS)


def sort(api: str, answer: Any) -> None:
    """Bring arrays without an order into one, in place."""
    for mask in MASKS:
        if mask.api == api and mask.sort_by:
            _sort(answer, mask.field.split("."), mask.sort_by)


def _sort(value: Any, path: list[str], key: str) -> None:
    if isinstance(value, list):
        for item in value:
            _sort(item, path, key)
    elif isinstance(value, dict) and path[0] in value:
        if len(path) > 1:
            _sort(value[path[0]], path[1:], key)
        elif value[path[0]]:
            value[path[0]].sort(key=lambda item: str(item[key]) if key else str(item))
