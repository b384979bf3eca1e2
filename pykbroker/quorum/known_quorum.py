"""The state of the quorum as one node knows it, as a value for parts that do not run on the loop of its replica."""

from __future__ import annotations

from typing import NamedTuple

from pykbroker_raft.ready import Destination


class KnownQuorum(NamedTuple):
    """`leader_id` may be known while `leader`, the address at which it listens for other nodes, is not."""

    node_id: int
    leader_id: int | None = None
    leader: Destination | None = None
    kraft_version: int = 0
    is_only_voter: bool = False
    #: True if the metadata log writes into the room of its reserve
    is_short_of_room: bool = False
