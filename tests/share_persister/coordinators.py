"""A share coordinator that a test scripts, and a persister that talks to it over the simulated or the real network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.quorum.channel import BrokerChannels
from pykbroker.runtime import Runtime
from pykbroker.share_persister.persister import SharePersister
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from pykbroker_wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from testkit.share_metadata import LISTENER, ShareMetadata
from tests.net.peer import Peer

WRITE, READ, SUMMARIZE, FIND = (
    int(ApiKey.WRITE_SHARE_GROUP_STATE),
    int(ApiKey.READ_SHARE_GROUP_STATE),
    int(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY),
    int(ApiKey.FIND_COORDINATOR),
)
TOPIC = b"t" * 16


def key(partition: int = 0, group: str = "g", topic: bytes = TOPIC) -> SharePartitionKey:
    return SharePartitionKey(group, topic, partition)


def batch(first: int, last: int, state: int = 2, count: int = 1) -> write_share_group_state.StateBatch:
    return write_share_group_state.StateBatch(
        first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
    )


class ScriptedCoordinator(Peer):
    """Keeps what was written last for each key. `refuse` returns the error for a key, or NONE."""

    def __init__(self, node_id: int = 1) -> None:
        super().__init__(answer=self._answer)
        self.node_id = node_id
        self.refuse: Callable[[SharePartitionKey], ErrorCode] = lambda _: ErrorCode.NONE
        self.find_error = ErrorCode.NONE
        self.states: dict[SharePartitionKey, Any] = {}
        self.carried_out = 0

    def asked(self, api_key: int) -> list[Any]:
        return [request for seen, _, request in self.seen if seen == api_key]

    def _answer(self, request: Any, version: int) -> Any:
        if request.API_KEY == FIND:
            node_id = -1 if self.find_error else self.node_id
            found = [
                Coordinator(key=each, error_code=self.find_error, node_id=node_id) for each in request.coordinator_keys
            ]
            return FindCoordinatorResponse(coordinators=found)
        wire, response, result = _WIRE[request.API_KEY]
        results = []
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                name = SharePartitionKey(request.group_id, topic.topic_id, asked.partition)
                answer = wire.PartitionResult(partition=asked.partition, error_code=self.refuse(name))
                if answer.error_code == ErrorCode.NONE:
                    self.carried_out += 1
                    self._carry_out(request.API_KEY, name, asked, answer)
                partitions.append(answer)
            results.append(result(topic_id=topic.topic_id, partitions=partitions))
        return response(results=results)

    def _carry_out(self, api_key: int, name: SharePartitionKey, asked: Any, answer: Any) -> None:
        if api_key == ApiKey.DELETE_SHARE_GROUP_STATE:
            self.states.pop(name, None)
        elif api_key in (WRITE, ApiKey.INITIALIZE_SHARE_GROUP_STATE):
            self.states[name] = asked
        else:
            state = self.states[name]
            answer.state_epoch, answer.start_offset = state.state_epoch, state.start_offset
            if api_key == READ:
                batches = getattr(state, "state_batches", [])
                answer.state_batches = [
                    read_share_group_state.StateBatch(
                        first_offset=each.first_offset,
                        last_offset=each.last_offset,
                        delivery_state=each.delivery_state,
                        delivery_count=each.delivery_count,
                    )
                    for each in batches
                ]
            else:
                answer.leader_epoch = getattr(state, "leader_epoch", 0)
                answer.delivery_complete_count = getattr(state, "delivery_complete_count", -1)


_WIRE: dict[int, tuple[Any, Any, Any]] = {
    83: (
        initialize_share_group_state,
        initialize_share_group_state.InitializeShareGroupStateResponse,
        initialize_share_group_state.InitializeStateResult,
    ),
    84: (
        read_share_group_state,
        read_share_group_state.ReadShareGroupStateResponse,
        read_share_group_state.ReadStateResult,
    ),
    85: (
        write_share_group_state,
        write_share_group_state.WriteShareGroupStateResponse,
        write_share_group_state.WriteStateResult,
    ),
    86: (
        delete_share_group_state,
        delete_share_group_state.DeleteShareGroupStateResponse,
        delete_share_group_state.DeleteStateResult,
    ),
    87: (
        read_share_group_state_summary,
        read_share_group_state_summary.ReadShareGroupStateSummaryResponse,
        read_share_group_state_summary.ReadStateSummaryResult,
    ),
}


class PersisterAndItsWay:
    """A persister with its connections."""

    def __init__(self, runtime: Runtime, metadata: ShareMetadata) -> None:
        self.channels = BrokerChannels(runtime, metadata.address, "broker-7")
        self.persister = SharePersister(runtime, metadata.view, LISTENER, self.channels.send)
        metadata.publisher = self.persister

    def close(self) -> None:
        self.persister.close()
        self.channels.close()
