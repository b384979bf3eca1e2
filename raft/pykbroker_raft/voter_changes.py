"""Changes to the voter set (KIP-853), the leader's side: adding and removing voters, updating a voter's own entry, and
raising kraft.version.

Responsible for what Apache Kafka checks before a change, in its order, and for the response when the change is
committed. Not responsible for a replica's requests to its leader (`own_membership`).

One change at a time (R13): another one is refused while a voter set is not committed, so that any majority of the old
set shares a member with any majority of the new one. A set is in force as soon as it is appended. A leader that is not
in the committed set resigns; until then it leads without counting itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pykbroker_raft import batches, rpc
from pykbroker_raft.current_role import CurrentRole
from pykbroker_raft.fetch_server import FetchServer
from pykbroker_raft.identity import RaftConfig
from pykbroker_raft.leader_news import LeaderNews
from pykbroker_raft.outbox import Outbox
from pykbroker_raft.peer_requests import PeerRequests
from pykbroker_raft.ready import NEVER, Destination, Inbound, Now
from pykbroker_raft.replica_log import ReplicaLog
from pykbroker_raft.states import Leader
from pykbroker_raft.voters import Endpoints, ReplicaKey, VoterNode, VoterSet, address, with_hosts
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.primitives import uuid_to_str

FEATURE = "kraft.version"


@dataclass(slots=True)
class _Addition:
    """A new voter: first its range of kraft.version is requested, then the voter is appended."""

    token: int
    voter: ReplicaKey
    endpoints: Endpoints
    ack_when_committed: bool
    deadline_ms: int
    #: the offset of the new voter set; None until it is appended
    offset: int | None = None
    is_answered: bool = False

    def appended_at(self, offset: int) -> None:
        self.offset = offset

    def answer(self) -> bool:
        """Return True for the first call only, because a request gets one response."""
        was_answered, self.is_answered = self.is_answered, True
        return not was_answered


@dataclass(slots=True)
class _Removal:
    """A voter whose removal is appended."""

    token: int
    offset: int
    deadline_ms: int


@dataclass(slots=True)
class ChangeRefused(Exception):  # answered with its error
    """The error that refuses a change."""

    error: ErrorCode
    message: str | None = None


class VoterChanges:
    """Owns the one change that waits for its response."""

    def __init__(
        self,
        config: RaftConfig,
        roles: CurrentRole,
        log: ReplicaLog,
        outbox: Outbox,
        connections: PeerRequests,
        news: LeaderNews,
        fetches: FetchServer,
    ) -> None:
        self._config = config
        self._roles = roles
        self._log = log
        self._outbox = outbox
        self._connections = connections
        self._news = news
        self._fetches = fetches
        self._pending: _Addition | _Removal | None = None

    # Common to both changes

    def _leader(self, cluster_id: str | None) -> Leader:
        if not self._news.is_our_cluster(cluster_id):
            text = f'The given id "{cluster_id}" doesn\'t match the cluster id "{self._config.cluster_id}"'
            raise ChangeRefused(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
        error = self._news.check_leader_request(self._roles.epoch)
        if error is not ErrorCode.NONE:
            raise ChangeRefused(error)
        leader = self._roles.state
        assert isinstance(leader, Leader)
        return leader

    def _changeable(self, leader: Leader, doing: str, now: Now) -> VoterSet:
        """Return the committed voters if they may be changed now. Raises ChangeRefused."""
        self._expire(now)
        history = self._log.history
        waiting = "Request timed out waiting for"
        if self._pending is not None:
            raise ChangeRefused(
                ErrorCode.REQUEST_TIMED_OUT, f"{waiting} leader to handle previous voter change request"
            )
        if leader.high_watermark is None:
            raise ChangeRefused(
                ErrorCode.REQUEST_TIMED_OUT, f"{waiting} leader to establish HWM and fence previous voter changes"
            )
        if history.kraft_version < 1:
            raise ChangeRefused(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Cluster doesn't support {doing} voter because the {FEATURE} feature is {history.kraft_version}",
            )
        offset = history.voters_offset
        if offset is None or offset >= leader.high_watermark:
            where = "Optional.empty" if offset is None else f"Optional[{offset}]"
            raise ChangeRefused(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{waiting} voters to commit the latest voter change at {where} with HWM {leader.high_watermark}",
            )
        return history.voters

    def _append(self, leader: Leader, voters: VoterSet, now: Now) -> int:
        """Append a voter set, which is in force at once. Return its offset."""
        self._roles.append_control(leader, [batches.voters(voters)], now)
        return self._log.view.end_offset - 1

    # AddRaftVoter

    def handle_add_request(self, inbound: Inbound, now: Now) -> None:
        try:
            self._begin_to_add(inbound, now)
        except ChangeRefused as refusal:
            self._outbox.reply(inbound.token, rpc.add_voter_response(refusal.error, refusal.message))

    def _begin_to_add(self, inbound: Inbound, now: Now) -> None:
        request = inbound.request
        leader = self._leader(request.cluster_id)
        key = _voter_of(request, "Add")
        endpoints = rpc.endpoints_from_request(request.listeners)
        if _lacks_host(endpoints):
            raise ChangeRefused(
                ErrorCode.INVALID_REQUEST,
                f"Add voter request for {_key_text(key)} has an endpoint without a host: {_endpoints_text(endpoints)}",
            )
        endpoint = address(endpoints, self._config.listener)
        if endpoint is None:
            raise ChangeRefused(
                ErrorCode.INVALID_REQUEST,
                f"Add voter request didn't include the endpoint ({_endpoints_text(endpoints)}) for the default "
                f"listener ListenerName({self._config.listener})",
            )
        voters = self._changeable(leader, "adding", now)
        if voters.get(key.id) is not None:
            raise ChangeRefused(
                ErrorCode.DUPLICATE_VOTER,
                f"The voter id for {_key_text(key)} is already part of the set of voters {_keys_text(voters)}.",
            )
        if self._config.alone_because is not None:
            raise ChangeRefused(
                ErrorCode.INVALID_REQUEST, f"New voter {_key_text(key)} is refused: {self._config.alone_because}"
            )
        if not self._connections.is_ready(key.id, now.steady_ms):
            raise ChangeRefused(
                ErrorCode.REQUEST_TIMED_OUT, f"New voter {_key_text(key)} is not ready to receive requests"
            )
        destination = Destination(key.id, endpoint.host, endpoint.port)
        self._outbox.send_to(destination, rpc.api_versions_request(), now)
        self._pending = _Addition(
            inbound.token,
            key,
            endpoints,
            inbound.version < 1 or request.ack_when_committed,
            now.steady_ms + self._config.request_timeout_ms,
        )

    def handle_api_versions_response(self, source: Destination, response: Any, now: Now) -> bool:
        """Append the new voter, which has answered with its range of kraft.version."""
        error = ErrorCode.received(response.error_code)
        found = next((feature for feature in response.supported_features if feature.name == FEATURE), None)
        supported = None if found is None else (found.min_version, found.max_version)
        self._voter_answered(source, error, supported, now)
        return error is ErrorCode.NONE

    def not_answered(self, source: Destination, now: Now) -> None:
        """Refuse the new voter if the failed request was sent to it."""
        self._voter_answered(source, ErrorCode.BROKER_NOT_AVAILABLE, None, now)

    def _voter_answered(
        self, source: Destination, error: ErrorCode, supported: tuple[int, int] | None, now: Now
    ) -> None:
        addition, leader = self._pending, self._roles.state
        if not isinstance(addition, _Addition) or not isinstance(leader, Leader):
            return
        if addition.offset is not None or addition.voter.id != source.id:
            return
        try:
            addition.appended_at(self._add(leader, addition, error, supported, now))
        except ChangeRefused as refusal:
            self._finish(refusal.error, refusal.message)
            return
        if not addition.ack_when_committed:
            self._answer(ErrorCode.NONE)

    def _add(
        self, leader: Leader, addition: _Addition, error: ErrorCode, supported: tuple[int, int] | None, now: Now
    ) -> int:
        name = _key_text(addition.voter)
        if error is not ErrorCode.NONE:
            raise ChangeRefused(
                ErrorCode.REQUEST_TIMED_OUT,
                f"Aborted add voter operation for since API_VERSIONS returned an error {error.name}",
            )
        history = self._log.history
        if supported is None or not supported[0] <= history.kraft_version <= supported[1]:
            low, high = supported or (0, 0)
            raise ChangeRefused(
                ErrorCode.INVALID_REQUEST,
                f"Aborted add voter operation for {name} since the {FEATURE} range (min: {low}, max: {high} doesn't "
                f"support the finalized version {history.kraft_version}",
            )
        progress = leader.replicas.observers.get(addition.voter)
        if progress is None or not progress.is_caught_up(now.steady_ms):
            raise ChangeRefused(
                ErrorCode.REQUEST_TIMED_OUT, f"Aborted add voter operation for {name} since it is lagging behind"
            )
        added = history.voters.added(VoterNode(addition.voter, addition.endpoints, *supported))
        if added is None:
            raise AssertionError(f"{addition.voter} became a voter while it was asked for its versions")
        return self._append(leader, added, now)

    # RemoveRaftVoter

    def handle_remove_request(self, inbound: Inbound, now: Now) -> None:
        try:
            self._begin_to_remove(inbound, now)
        except ChangeRefused as refusal:
            self._outbox.reply(inbound.token, rpc.remove_voter_response(refusal.error, refusal.message))

    def _begin_to_remove(self, inbound: Inbound, now: Now) -> None:
        leader = self._leader(inbound.request.cluster_id)
        key = _voter_of(inbound.request, "Remove")
        voters = self._changeable(leader, "removing", now)
        removed = voters.removed(key)
        if removed is None:
            raise ChangeRefused(
                ErrorCode.VOTER_NOT_FOUND,
                f"Cannot remove voter {_key_text(key)} from the set of voters {_keys_text(voters)}",
            )
        offset = self._append(leader, removed, now)
        self._pending = _Removal(inbound.token, offset, now.steady_ms + self._config.request_timeout_ms)

    # The end of a change

    def poll(self, now: Now) -> int:
        """Answer the change if it is committed or took too long. Return when to call again."""
        leader = self._roles.state
        if not isinstance(leader, Leader):
            return NEVER
        committed = leader.high_watermark or 0
        pending = self._pending
        if pending is not None and pending.offset is not None and committed > pending.offset:
            self._finish(ErrorCode.NONE)
        self._expire(now)
        offset = self._log.history.voters_offset
        is_out = not self._roles.is_voter and offset is not None and committed > offset
        if is_out and not leader.resign_requested:
            # Resign in the next turn, so that the commit is sent first.
            leader.ask_to_resign()
            return now.steady_ms
        return NEVER if self._pending is None else self._pending.deadline_ms

    def _expire(self, now: Now) -> None:
        if self._pending is not None and now.steady_ms >= self._pending.deadline_ms:
            # The change may still be committed; until then no other change begins.
            self._finish(ErrorCode.REQUEST_TIMED_OUT)

    def fail_pending(self) -> None:
        """Answer the change because this leadership has ended."""
        if self._pending is not None:
            self._finish(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _finish(self, error: ErrorCode, message: str | None = None) -> None:
        self._answer(error, message)
        self._pending = None

    def _answer(self, error: ErrorCode, message: str | None = None) -> None:
        match self._pending:
            case _Addition() as addition:
                if addition.answer():
                    self._outbox.reply(addition.token, rpc.add_voter_response(error, message))
            case _Removal(token=token):
                self._outbox.reply(token, rpc.remove_voter_response(error, message))

    # UpdateRaftVoter

    def handle_update_request(self, inbound: Inbound, now: Now) -> None:
        error = self._update(inbound.request, now)
        endpoint = self._roles.leader_endpoint_for(inbound.listener)
        self._outbox.reply(
            inbound.token,
            rpc.update_voter_response(error, self._roles.leader_id_or_none_known, self._roles.epoch, endpoint),
        )

    def _update(self, request: Any, now: Now) -> ErrorCode:
        if not self._news.is_our_cluster(request.cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        error = self._news.check_leader_request(request.current_leader_epoch)
        if error is not ErrorCode.NONE:
            return error
        leader = self._roles.state
        assert isinstance(leader, Leader)
        key = ReplicaKey(request.voter_id, bytes(request.voter_directory_id))
        endpoints = rpc.endpoints_from_request(request.listeners)
        feature = request.kraft_version_feature
        low, high = feature.min_supported_version, feature.max_supported_version
        if (
            key.id < 0
            or not key.has_directory
            or address(endpoints, self._config.listener) is None
            or _lacks_host(endpoints)
            or not 0 <= low <= high
        ):
            return ErrorCode.INVALID_REQUEST
        history = self._log.history
        self._expire(now)
        if self._pending is not None or leader.high_watermark is None:
            return ErrorCode.REQUEST_TIMED_OUT
        if history.kraft_version >= 1:
            offset = history.voters_offset
            voters = history.voters if offset is not None and offset < leader.high_watermark else None
        else:
            # Configured voters have no record to change: the leader remembers what they send.
            voters = leader.told_voters
        if voters is None:
            return ErrorCode.REQUEST_TIMED_OUT
        if not low <= history.kraft_version <= high:
            return ErrorCode.INVALID_REQUEST
        node = VoterNode(key, endpoints, low, high)
        updated = voters.updated(node) if history.kraft_version >= 1 else voters.updated_by_id(node)
        if updated is None:
            return ErrorCode.VOTER_NOT_FOUND
        if history.kraft_version < 1:
            leader.voter_told(updated)
        elif voters.needs_update(node):
            self._append(leader, updated, now)
        self._fetches.heard_from_voter(leader, key, now)
        return ErrorCode.NONE

    # kraft.version

    def raise_kraft_version(self, version: int, now: Now, *, validate_only: bool) -> None:
        """Move from configured voters to voters in the log. Raises INVALID_UPDATE_VERSION."""
        leader = self._roles.state
        assert isinstance(leader, Leader)
        current = self._log.history.kraft_version
        if version == current:
            return
        change = f"Invalid upgrade of {FEATURE} from version {current} to {version}"
        if version < current:
            raise _wrong(f"{change} because the new version is a downgrade")
        if leader.told_voters is None:
            raise _wrong(change)
        if not leader.told_voters.supports(version):
            raise _wrong(f"Invalid upgrade of {FEATURE} to {version} because not all of the voters support it")
        if validate_only:
            return
        voters, leader.told_voters = leader.told_voters, None
        self._roles.append_control(leader, [batches.kraft_version(version), batches.voters(voters)], now)


def _wrong(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, text)


def _voter_of(request: Any, doing: str) -> ReplicaKey:
    """Return the voter that AddRaftVoter or RemoveRaftVoter names. Raises ChangeRefused."""
    key = ReplicaKey(request.voter_id, bytes(request.voter_directory_id))
    if key.id < 0 or not key.has_directory:
        raise ChangeRefused(ErrorCode.INVALID_REQUEST, f"{doing} voter request didn't include a valid voter")
    return key


def _lacks_host(endpoints: Endpoints) -> bool:
    """Return True if a record with these endpoints would do harm: Apache Kafka ends at a voter without a host, and at
    each later start, because the record is in its log."""
    return with_hosts(endpoints) != endpoints


def _key_text(key: ReplicaKey) -> str:
    directory = uuid_to_str(key.directory_id) if key.has_directory else "<undefined>"
    return f"ReplicaKey(id={key.id}, directoryId={directory})"


def _keys_text(voters: Iterable[VoterNode]) -> str:
    return f"[{', '.join(_key_text(voter.key) for voter in voters)}]"


def _endpoints_text(endpoints: Endpoints) -> str:
    listed = ", ".join(f"ListenerName({e.listener})={e.host}/<unresolved>:{e.port}" for e in endpoints)
    return f"Endpoints(endpoints={{{listed}}})"
