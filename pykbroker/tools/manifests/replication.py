"""The variables of a container that make topics survive the loss of a broker."""

from __future__ import annotations

from pykbroker.config.cluster_profile import replicated_profile
from pykbroker.config.typed_config import find_key
from pykbroker.config.variables import variable_of


def replication_variables(brokers: int) -> dict[str, str]:
    """Return variable -> text for the profile of this number of brokers, without values that are the default of their
    key."""
    found = {}
    for key, text in replicated_profile(brokers).items():
        row = find_key(key)
        if row is None or row.parse(text) != row.default:
            found[variable_of(key)] = text
    return found
