"""Data directories of a container before a node opens them: the first voters of a new directory, and the problems that
stop the start.

Responsible for the decisions and their messages; tools/commands/in_container.py reads the disk.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pykbroker.config.typed_config import Config

#: Addresses by which a node in a container names itself.
_OWN_HOSTS: Final = frozenset({"", "localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})  # noqa: S104  # compared, not bound


class FirstVoters(Enum):
    """The ways in which the quorum of a directory that is now formatted gets its first voters."""

    #: controller.quorum.voters names them, or another node begins the quorum
    ELSEWHERE = "elsewhere"
    #: this controller is the first voter of a new quorum
    STANDALONE = "standalone"
    #: this controller has no voters until it finds a quorum
    JOINS = "joins"


def first_voters(config: Config, own_names: Collection[str]) -> FirstVoters:
    """Return how the quorum gets its first voters. `own_names`: further host names of this node. A controller without
    configured voters begins a quorum only if every bootstrap server is this node: two controllers that both began a
    quorum would make two clusters."""
    if not config.is_controller or config.voters:
        return FirstVoters.ELSEWHERE
    points = (*config.listeners.controller, *config.listeners.advertised_controller)
    hosts = {point.host for point in points} | _OWN_HOSTS | set(own_names)
    ports = {point.port for point in points}
    for address in config.list("controller.quorum.bootstrap.servers"):
        host, _, port = address.rpartition(":")
        if host.strip("[]") not in hosts or int(port) not in ports:
            return FirstVoters.JOINS
    return FirstVoters.STANDALONE


@dataclass(slots=True, frozen=True)
class DirectorySeen:
    """A directory for data, or the nearest existing one above it."""

    path: str
    owner: int
    writable: bool
    #: True if it is mounted for reading only
    read_only: bool
    #: an entry in it that the node cannot write, and its owner
    foreign: tuple[str, int] | None = None


def complaint(data: str, seen: DirectorySeen, user: int) -> str | None:
    """Return the line that stops the start, with the problem of the directory `data` and the remedy. None if there is
    no problem."""
    if seen.read_only:
        return f"{data} is read-only: mount the volume for reading and writing"
    if not seen.writable:
        what, owner = seen.path, seen.owner
    elif seen.foreign is not None:
        what, owner = seen.foreign
    else:
        return None
    if owner == user:
        return f"{what} is not writable for user {user}, its owner: chmod -R u+rwX {data}"
    return (
        f"{what} belongs to user {owner} and is not writable for user {user}: chown -R {user} {data} on the volume, or "
        f"run the container as its owner (--user {owner})"
    )


def another_cluster(reason: str, cluster_id: str) -> str:
    """Return the remedy for directories that were formatted for another node or cluster. `reason` names file and
    ids."""
    return (
        f"{reason}. The volume belongs to another cluster or node. Mount the right one, or set CLUSTER_ID "
        f"(here {cluster_id}) and KAFKA_NODE_ID to its values, or empty it for a new start"
    )
