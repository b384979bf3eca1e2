"""What one node knows of the quorum, as a value: for those that do not live on the loop of its replica."""

from __future__ import annotations

from typing import NamedTuple

from pykbroker_raft.ready import Destination


class KnownQuorum(NamedTuple):
    """`leader_id` also where `leader`, the place where it listens for other nodes, is not known."""

    node_id: int
    leader_id: int | None = None
    leader: Destination | None = None
    kraft_version: int = 0
    is_only_voter: bool = False
    #: the metadata log writes into the room of its reserve
    is_short_of_room: bool = False
