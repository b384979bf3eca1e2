"""Values of configurations with units, as people write them: `retention.ms=7d`, `segment.bytes=1GiB`. Pure.

The last word of a key is the unit that the cluster expects. A value without a unit, or one that is no whole number of
the key's unit, stays as it is, and the cluster judges it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pykbroker.tools.cluster.time_words import parsed_duration_ms

#: The end of the help of each option that takes configurations.
UNITS: Final = "retention.ms=7d, segment.bytes=1GiB"
_KEYS_MS: Final = {"ms": 1, "seconds": 1000, "minutes": 60_000, "hours": 3_600_000}
_SIZES: Final = {"b": 1} | {
    f"{letter}{end}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for end, base in (("ib", 1024), ("b", 1000))
}
_SIZE: Final = re.compile(r"(\d{1,18}) ?([kmgt]?i?b)", re.IGNORECASE)


def with_plain_numbers(configs: Mapping[str, str]) -> dict[str, str]:
    """Return the configurations with the numbers that a cluster reads."""
    return {key: plain_number(key, value) for key, value in configs.items()}


def plain_number(key: str, value: str) -> str:
    """Return the value of a key as a number without a unit."""
    words = key.split(".")
    if words[-1] in _KEYS_MS:
        return _duration(value, _KEYS_MS[words[-1]])
    if "bytes" in words or words[-1] == "size":
        found = _SIZE.fullmatch(value)
        size = None if found is None else _SIZES.get(found[2].lower())
        return value if found is None or size is None else str(int(found[1]) * size)
    return value


def _duration(value: str, unit_ms: int) -> str:
    try:
        found_ms = parsed_duration_ms(value)
    except ValueError:
        return value
    return value if found_ms % unit_ms else str(found_ms // unit_ms)
