"""The durable election state of a replica: its epoch, the leader it knows, its vote; and the bytes of `quorum-state`.

Responsible for the value and its file form, one line of JSON as Apache Kafka writes it. Data version 0 is written while
kraft.version is 0 (static voters), and 1 from then on (the vote has a directory id, the voters are in the log).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pykbroker_raft.voters import NO_DIRECTORY, ReplicaKey
from pykbroker_wire.primitives import uuid_from_str, uuid_to_str

FILE = "quorum-state"
HIGHEST_VERSION = 1


class CorruptQuorumState(ValueError):
    """quorum-state cannot be read. A replica that starts without it could vote twice in an epoch."""


@dataclass(frozen=True, slots=True)
class ElectionState:
    """Survives every restart. `voters` and `kraft_version` decide only the form of the file."""

    epoch: int
    leader_id: int | None = None
    voted: ReplicaKey | None = None
    voters: tuple[int, ...] = ()
    kraft_version: int = 0

    def to_bytes(self) -> bytes:
        leader_id = -1 if self.leader_id is None else self.leader_id
        voted_id = -1 if self.voted is None else self.voted.id
        fields: dict[str, object]
        if self.kraft_version == 0:
            fields = {
                "clusterId": "",
                "leaderId": leader_id,
                "leaderEpoch": self.epoch,
                "votedId": voted_id,
                "appliedOffset": 0,
                "currentVoters": [{"voterId": voter} for voter in self.voters],
                "data_version": 0,
            }
        else:
            directory_id = NO_DIRECTORY if self.voted is None else self.voted.directory_id
            fields = {
                "leaderId": leader_id,
                "leaderEpoch": self.epoch,
                "votedId": voted_id,
                "votedDirectoryId": uuid_to_str(directory_id),
                "data_version": 1,
            }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> ElectionState:
        try:
            fields = json.loads(data)
            version = int(fields["data_version"])
            leader_id, epoch, voted_id = int(fields["leaderId"]), int(fields["leaderEpoch"]), int(fields["votedId"])
            directory_id = uuid_from_str(fields["votedDirectoryId"]) if version >= 1 else NO_DIRECTORY
            voters = tuple(int(voter["voterId"]) for voter in fields.get("currentVoters") or ())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptQuorumState(f"quorum-state is not readable: {error}") from error
        if not 0 <= version <= HIGHEST_VERSION:
            raise CorruptQuorumState(f"quorum-state has data_version {version}, known are 0 to {HIGHEST_VERSION}")
        return cls(
            epoch,
            leader_id if leader_id >= 0 else None,
            ReplicaKey(voted_id, directory_id) if voted_id >= 0 else None,
            voters,
            version,
        )
