"""The requests that handlers pass to the quorum, each with the type of its response.

Not responsible for the responses: the quorum's driver makes them.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, TypeAlias, TypeVar, overload

from pykbroker_wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from pykbroker_wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from pykbroker_wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from pykbroker_wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from pykbroker_wire.messages.fetch import FetchRequest, FetchResponse
from pykbroker_wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from pykbroker_wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from pykbroker_wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from pykbroker_wire.messages.vote import VoteRequest, VoteResponse

R = TypeVar("R")
NowOrLater: TypeAlias = R | asyncio.Future[R]


class QuorumLevels(Protocol):
    """The facts about the quorum that both halves read."""

    @property
    def kraft_version(self) -> int: ...

    @property
    def is_only_voter(self) -> bool: ...


class QuorumRequests(QuorumLevels, Protocol):
    """Answers requests at once or later. `version` is the version of the request, `listener` the name of the listener
    that received it."""

    @overload
    def handle(self, request: VoteRequest, version: int, listener: str) -> NowOrLater[VoteResponse]: ...
    @overload
    def handle(
        self, request: BeginQuorumEpochRequest, version: int, listener: str
    ) -> NowOrLater[BeginQuorumEpochResponse]: ...
    @overload
    def handle(
        self, request: EndQuorumEpochRequest, version: int, listener: str
    ) -> NowOrLater[EndQuorumEpochResponse]: ...
    @overload
    def handle(self, request: DescribeQuorumRequest, version: int, listener: str) -> DescribeQuorumResponse: ...
    @overload
    def handle(self, request: FetchRequest, version: int, listener: str) -> NowOrLater[FetchResponse]: ...
    @overload
    def handle(
        self, request: FetchSnapshotRequest, version: int, listener: str
    ) -> NowOrLater[FetchSnapshotResponse]: ...
    @overload
    def handle(self, request: AddRaftVoterRequest, version: int, listener: str) -> NowOrLater[AddRaftVoterResponse]: ...
    @overload
    def handle(
        self, request: RemoveRaftVoterRequest, version: int, listener: str
    ) -> NowOrLater[RemoveRaftVoterResponse]: ...
    @overload
    def handle(
        self, request: UpdateRaftVoterRequest, version: int, listener: str
    ) -> NowOrLater[UpdateRaftVoterResponse]: ...
