"""The file of capacities: TOML, one table for each broker, and `default` for the others.

    [default]
    disk = 2e12
    replicas = 4000
    [5]
    leader_bytes_in = 50e6

Keys are the names of resources in lower case (seen.py) and `replicas`. Units are bytes, bytes per second and, for
`cpu`, shares of one core.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pykbroker.tools.balance.seen import LoadResource, SeenBroker

_REPLICAS: Final = "replicas"
_DEFAULT: Final = "default"
_MOST_REPLICAS: Final = 2**31 - 1
_TOO_MUCH: Final = 1e300
#: Resources that cannot be measured from outside. Without their load in a file, no plan could keep their limits.
_NOT_SEEN: Final = {
    LoadResource.BYTES_OUT: "what consumers read is not seen from outside: --loads needs bytes_out in each line",
    LoadResource.CPU: (
        "what CPU a partition costs is not seen from outside: --loads needs leader_cpu and follower_cpu in each line"
    ),
}


def with_capacities(brokers: Sequence[SeenBroker], text: str, told: Collection[LoadResource] = ()) -> list[SeenBroker]:
    """Return the brokers with the limits of the file. `told`: resources whose load a file of loads has (load_file.py),
    because it cannot be measured from outside. Raises ValueError, in one line, if the text is no file of capacities,
    names an unknown broker, or limits a resource whose load is unknown."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"the capacities are no TOML: {error}") from error
    known = {str(broker.id) for broker in brokers}
    for name, table in tables.items():
        _check(name, table, told)
        if name != _DEFAULT and name not in known:
            raise ValueError(f"capacities of [{name}], which is no broker of this cluster")
    return [_limited(broker, tables.get(_DEFAULT, {}) | tables.get(str(broker.id), {})) for broker in brokers]


def _check(name: str, table: object, told: Collection[LoadResource]) -> None:
    if not isinstance(table, dict):
        raise ValueError(f"{name} stands outside of a table: [default] or [<broker>]")
    not_known = {each.name.lower(): why for each, why in _NOT_SEEN.items() if each not in told}
    keys = {_REPLICAS, *(each.name.lower() for each in LoadResource)} - not_known.keys()
    for key, value in table.items():
        if key in not_known:
            raise ValueError(f"[{name}] {key} cannot be limited: {not_known[key]}")
        if key not in keys:
            raise ValueError(f"[{name}] {key} is no resource; there are {', '.join(sorted(keys))}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _TOO_MUCH:
            raise ValueError(f"[{name}] {key} is no number from 0 on")
        if key == _REPLICAS and not isinstance(value, int):
            raise ValueError(f"[{name}] {key} is no whole number")
        if key == _REPLICAS and value > _MOST_REPLICAS:
            raise ValueError(f"[{name}] {key} is above {_MOST_REPLICAS}")


def _limited(broker: SeenBroker, table: Mapping[str, Any]) -> SeenBroker:
    capacity = {each: float(table[each.name.lower()]) for each in LoadResource if each.name.lower() in table}
    return replace(broker, capacity=capacity, most_replicas=table.get(_REPLICAS))
