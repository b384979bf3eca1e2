"""The notation of `pykbroker.create.topics`: name[:partitions[:replicas[:cleanup policy]]], separated by commas.

The variable KAFKA_CREATE_TOPICS of several images has the same notation. Not responsible for creating the topics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pykbroker.config.kinds import Check, Value, invalid

_ENTRY: Final = re.compile(
    r"(?P<name>[A-Za-z0-9._-]{1,249})"
    r"(:(?P<partitions>[1-9][0-9]{0,6})(:(?P<replicas>[1-9][0-9]{0,3})(:(?P<policy>compact|delete))?)?)?"
)


@dataclass(slots=True, frozen=True)
class InitialTopic:
    """A topic to create; -1 means the cluster's default."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


def parse_initial_topics(entries: Iterable[str]) -> Iterator[InitialTopic]:
    """Parse entries that `TopicsToCreate` has checked."""
    for entry in entries:
        found = _ENTRY.fullmatch(entry)
        assert found is not None, f"{entry} was not checked"
        policy = found["policy"]
        yield InitialTopic(
            found["name"],
            int(found["partitions"] or -1),
            int(found["replicas"] or -1),
            {} if policy is None else {"cleanup.policy": policy},
        )


class TopicsToCreate(Check):
    """A check that every entry has the notation of `pykbroker.create.topics`."""

    __slots__ = ()

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, tuple), f"{name} is not a list"
        for entry in value:
            if not _ENTRY.fullmatch(entry) or entry.partition(":")[0] in (".", ".."):
                raise invalid(name, entry, f"Each entry should be in the form {self}")

    def __str__(self) -> str:
        return "topic[:partitions[:replicas[:compact|delete]]]"
