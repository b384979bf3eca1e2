"""Messages of the quorum from a broken or hostile peer: they can be decoded, are mostly of our cluster, and are untrue.

Each value is one that the replica under test knows (its epoch, its end, a voter's id) or its neighbour, so that a
message passes more than its first check. A seed determines the whole conversation.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from pykbroker.quorum.driver import QuorumDriver
from pykbroker_raft import batches, rpc
from pykbroker_raft.ready import Destination
from pykbroker_wire.messages.fetch import FetchResponse
from pykbroker_wire.primitives import EncodeError
from testkit.messages.catalogue import Maker, entry
from tests.quorum.world import CLUSTER, WALL_MS

#: the voters
IDS = (1, 2)
APIS = (
    "AddRaftVoter",
    "BeginQuorumEpoch",
    "DescribeQuorum",
    "EndQuorumEpoch",
    "Fetch",
    "FetchSnapshot",
    "RemoveRaftVoter",
    "UpdateRaftVoter",
    "Vote",
)
#: codes that the quorum uses, one that it does not use, and one of a later release
ERRORS = (0, 0, 0, 0, 0, 6, 8, 42, 74, 75, 104, 125, -1, 9999)
GREATEST = 2**31 - 1


class Hostile:
    """Makes messages for one replica."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def request(self, quorum: QuorumDriver) -> tuple[Any, int]:
        """Return a request of any API and version, and its version."""
        name = f"{self.rng.choice(APIS)}Request"
        version = self.rng.choice(entry(name).versions)
        return self.message(name, version, quorum), version

    def message(self, name: str, version: int, quorum: QuorumDriver) -> Any:
        """Return a message that was encoded and decoded, as if it came in."""
        while True:
            made = Maker(self.rng, self.rng.choice(("full", "random"))).message(entry(name), version)
            self._overlay(made, quorum)
            if self.rng.random() < 0.9:
                _make_single(made)
            if isinstance(made, FetchResponse) and self.rng.random() < 0.3:
                self._add_records(made, quorum)
            try:
                data = b"".join(bytes(part) for part in made.encode(version))
            except EncodeError:
                continue
            return type(made).decode(data, 0, version)[0]

    def _overlay(self, item: Any, quorum: QuorumDriver) -> None:
        for name in item.__slots__:
            value = getattr(item, name)
            for inner in value if isinstance(value, list) else [value]:
                if hasattr(inner, "__slots__"):
                    self._overlay(inner, quorum)
            if isinstance(value, (str, bytes, int)) and self.rng.random() < 0.95:
                setattr(item, name, self._better(type(item).__name__, name, value, quorum))

    def _better(self, owner: str, name: str, value: Any, quorum: QuorumDriver) -> Any:
        choice, end, epoch = self.rng.choice, quorum.log_end_offset, quorum.epoch
        if isinstance(value, bool):
            return choice((True, False))
        match name:
            case "cluster_id":
                return choice((CLUSTER, CLUSTER, CLUSTER, CLUSTER, value))
            case "topic_name" | "name":
                return rpc.TOPIC if "Topic" in owner else choice(("CONTROLLER", "CONTROLLER", "kraft.version", value))
            case "topic_id":
                return rpc.TOPIC_ID
            case "partition" | "partition_index" | "index" | "throttle_time_ms":
                return 0
            case "error_code":
                return choice(ERRORS)
            case "host":
                return choice(("c1", "c2", "c3", value))
            case "max_wait_ms":
                return choice((0, 5, 500, -1))
        if "directory_id" in name:
            return choice((*(bytes([id]) * 16 for id in (*IDS, 3)), bytes(16), value))
        if "epoch" in name and isinstance(value, int):
            return choice((epoch, epoch, epoch, epoch - 1, epoch + 1, 0, -1, GREATEST))
        if isinstance(value, int) and ("offset" in name or name in ("high_watermark", "position", "size")):
            return choice((0, 1, end, end - 1, end + 1, -1, quorum.high_watermark or 0, value))
        if isinstance(value, int) and name.endswith("_id"):
            return choice((*IDS, 3, -1, value))
        return value

    def _add_records(self, response: FetchResponse, quorum: QuorumDriver) -> None:
        """Add whole batches. Some of them continue the log."""
        base = quorum.log_end_offset + self.rng.choice((0, 0, 0, 1, -1))
        epoch = quorum.epoch + self.rng.choice((0, 0, 0, 1, -1))
        data = bytearray(batches.data_batch([b"foreign"] * 3, max(0, base), epoch, WALL_MS))
        if self.rng.random() < 0.3:
            data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
        for topic in response.responses:
            for partition in topic.partitions:
                partition.records = bytes(data)


def _make_single(message: Any) -> None:
    """Keep one topic with one partition, as all messages of the quorum have."""
    for name in ("topics", "responses"):
        topics = getattr(message, name, None)
        if topics and hasattr(topics[0], "partitions"):
            del topics[1:]
            del topics[0].partitions[1:]


class HostilePeers:
    """All other nodes of the quorum. They answer each request, and never truthfully."""

    def __init__(self, hostile: Hostile) -> None:
        self._hostile = hostile
        self.quorum: QuorumDriver | None = None
        self.answers = 0

    def send(self, destination: Destination, request: Any, timeout_ms: int) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        name = type(request).__name__.replace("Request", "Response")

        def arrive() -> None:
            if not answer.done():
                assert self.quorum is not None
                self.answers += 1
                answer.set_result(self._hostile.message(name, type(request).MAX_VERSION, self.quorum))

        loop.call_soon(arrive)
        return answer

    def close(self) -> None:
        pass
