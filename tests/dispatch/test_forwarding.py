"""Requests that go on to the controller: what is asked again, and what is not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

import pytest

from pykbroker.api import TABLE
from pykbroker.config.load import with_overrides
from pykbroker.dispatch import forwarding
from pykbroker.dispatch.dispatcher import Dispatcher
from pykbroker.dispatch.rows import ForwardedResponse
from pykbroker.dispatch.suspects import Suspects
from pykbroker.net.client import Disconnected, Unanswered
from pykbroker.net.connection import CloseConnection
from pykbroker.net.versions import UnsupportedVersion
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.headers import RequestHeader, decode_response
from pykbroker_wire.messages.add_raft_voter import AddRaftVoterRequest
from pykbroker_wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from pykbroker_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pykbroker_wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from pykbroker_wire.messages.create_acls import AclCreation, CreateAclsRequest
from pykbroker_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from pykbroker_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker_wire.messages.describe_quorum import DescribeQuorumRequest
from pykbroker_wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pykbroker_wire.messages.envelope import EnvelopeResponse
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pykbroker_wire.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse as IncrementalAnswer,
)
from pykbroker_wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from pykbroker_wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from pykbroker_wire.messages.unregister_broker import UnregisterBrokerRequest
from pykbroker_wire.messages.unregister_controller import UnregisterControllerRequest
from pykbroker_wire.messages.update_features import UpdateFeaturesRequest
from pykbroker_wire.primitives import TopLevel
from testkit.nodes.wire import frame_of
from tests.api.broker_half import Half
from tests.deny_all import DenyAll

ACL = AclCreation(resource_type=2, resource_pattern_type=3, operation=3, permission_type=3)
ACL_FILTER = DeleteAclsFilter(resource_type_filter=2, pattern_type_filter=3, operation=3, permission_type=3)


class Wire:
    """A dispatcher with one client. `frame` is what a connection hands over."""

    def __init__(self) -> None:
        self.half = Half()
        self.dispatcher = Dispatcher(self.half.services, forwarding.forward)
        self.peer = self.half.context(ApiVersionsRequest()).peer

    def frame(self, request: Any, version: int | None = None) -> memoryview:
        chosen = request.MAX_VERSION if version is None else version
        return memoryview(frame_of(request, chosen, correlation_id=9, client_id="me")[4:])

    def send(self, request: Any, version: int | None = None) -> Any:
        return self.dispatcher(self.peer, self.frame(request, version))


@pytest.fixture
def wire() -> Wire:
    return Wire()


class Channel:
    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.sent: list[asyncio.Future[Any]] = []
        self.timeouts_ms: list[int] = []
        self.requests: list[Any] = []
        wire.half.services.controller_channel = cast(Any, self)

    def send(self, request: Any, timeout_ms: int) -> asyncio.Future[Any]:
        self.timeouts_ms.append(timeout_ms)
        self.requests.append(request)
        self.sent.append(self.wire.half.services.runtime.loop.create_future())
        return self.sent[-1]


@pytest.fixture
def channel(wire: Wire) -> Channel:
    return Channel(wire)


def test_a_forwarded_answer_leaves_as_it_came(wire: Wire, channel: Channel) -> None:
    pending = wire.send(CreateTopicsRequest())
    channel.sent[0].set_result(EnvelopeResponse(response_data=b"\x00\x00\x00\x09the answer"))
    wire.half.loop.settle()
    assert isinstance(pending.future.result(), ForwardedResponse)
    assert b"".join(pending.encode(pending.future.result())) == b"\x00\x00\x00\x0e\x00\x00\x00\x09the answer"


BROKER, LOGGER, TOPIC = 4, 8, 2


def passed_on(channel: Channel) -> Any:
    """The request in the only Envelope."""
    (request,) = channel.requests
    view = memoryview(bytes(request.request_data))
    header, position = RequestHeader.decode(view)
    return IncrementalAlterConfigsRequest.decode(view, position, header.version)[0]


def test_a_broker_settles_what_concerns_one_broker_and_passes_the_rest_on(wire: Wire, channel: Channel) -> None:
    own = str(wire.half.services.node_id)
    named = [(BROKER, "9"), (TOPIC, "t"), (LOGGER, "9"), (BROKER, own), (BROKER, "x")]
    asked = [IncrementalResource(resource_type=kind, resource_name=name) for kind, name in named]
    pending = wire.send(IncrementalAlterConfigsRequest(resources=asked))
    rest = passed_on(channel).resources
    assert [(each.resource_type, each.resource_name) for each in rest] == [(TOPIC, "t"), (BROKER, own)]
    told = [
        IncrementalAnswer(error_code=code, error_message=None, resource_type=kind, resource_name=name)
        for (kind, name), code in (((TOPIC, "t"), 3), ((BROKER, own), 0))
    ]
    body = b"".join(IncrementalAlterConfigsResponse(responses=told).encode(1))
    channel.sent[0].set_result(EnvelopeResponse(response_data=b"\x00\x00\x00\x09\x00" + body))
    wire.half.loop.settle()
    answer = pending.future.result()
    assert [(r.resource_type, r.resource_name) for r in answer.responses] == named
    assert [r.error_code for r in answer.responses] == [42, 3, 42, 0, 42]
    assert "expected" in answer.responses[0].error_message.lower()


def test_what_a_broker_settles_alone_needs_no_controller(wire: Wire, channel: Channel) -> None:
    asked = [IncrementalResource(resource_type=LOGGER, resource_name="9")]
    frame = b"".join(wire.send(IncrementalAlterConfigsRequest(resources=asked)))
    answer: Any = decode_response(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, frame[4:])[1]
    assert [r.error_code for r in answer.responses] == [ErrorCode.INVALID_REQUEST]
    old = [AlterConfigsResource(resource_type=BROKER, resource_name="9")]
    frame = b"".join(wire.send(AlterConfigsRequest(resources=old)))
    answer = decode_response(ApiKey.ALTER_CONFIGS, 2, frame[4:])[1]
    assert [r.error_code for r in answer.responses] == [ErrorCode.INVALID_REQUEST]
    assert not channel.sent


@pytest.mark.parametrize("name", ["own", ""])
def test_a_broker_judges_its_configuration_by_its_own_file(wire: Wire, channel: Channel, name: str) -> None:
    services = wire.half.services
    services.config = with_overrides(services.config, {"num.io.threads": "40"})
    name = str(services.node_id) if name else name

    def alter(threads: str) -> None:
        configs = [AlterableConfig(name="num.io.threads", config_operation=0, value=threads)]
        changed = IncrementalResource(resource_type=BROKER, resource_name=name, configs=configs)
        answers.append(wire.send(IncrementalAlterConfigsRequest(resources=[changed])))

    answers: list[Any] = []
    alter("81")
    answer: Any = decode_response(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, b"".join(answers[0])[4:])[1]
    (refused,) = answer.responses
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert refused.error_message.endswith("value should not be greater than double the current value 40")
    assert not channel.sent
    alter("80")
    assert [each.resource_name for each in passed_on(channel).resources] == [name]


def test_while_the_controller_moves_it_is_asked_again(wire: Wire, channel: Channel) -> None:
    pending = wire.send(CreateTopicsRequest())
    outcomes: list[Any] = [EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER), Disconnected("gone")]
    for count, outcome in enumerate(outcomes, 1):
        assert len(channel.sent) == count
        if isinstance(outcome, Exception):
            channel.sent[-1].set_exception(outcome)
        else:
            channel.sent[-1].set_result(outcome)
        wire.half.loop.advance(forwarding.RETRY_SECONDS)
    channel.sent[-1].set_result(EnvelopeResponse(response_data=b"\x00\x00\x00\x09"))
    wire.half.loop.settle()
    assert isinstance(pending.future.result(), ForwardedResponse)


def test_a_request_that_ends_connections_fails_alone(
    wire: Wire, channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    """It and another are on their way when the connection ends. Each is sent again alone, one after the other."""
    alone = Channel(wire)
    wire.half.services.controller_channel = cast(Any, channel)
    wire.half.services.suspects = Suspects(wire.half.services.runtime.loop, cast(Any, alone))
    culprit, other = wire.send(CreateTopicsRequest(), 7), wire.send(CreateTopicsRequest(), 7)
    for sent in channel.sent:
        sent.set_exception(Unanswered("ended"))
    wire.half.loop.advance(forwarding.RETRY_SECONDS)
    assert (len(channel.sent), len(alone.sent)) == (2, 1)
    alone.sent[0].set_exception(Unanswered("ended"))
    wire.half.loop.settle()
    assert culprit.future.done()
    assert not other.future.done()
    assert "CreateTopics request from 127.0.0.1 is given up after two attempts: ended" in caplog.text
    # Its turn is now. That there is no connection yet is not its fault.
    alone.sent[1].set_exception(Disconnected("no connection"))
    wire.half.loop.advance(forwarding.RETRY_SECONDS)
    alone.sent[2].set_result(EnvelopeResponse(response_data=b"\x00\x00\x00\x09"))
    wire.half.loop.settle()
    assert isinstance(other.future.result(), ForwardedResponse)
    assert (len(channel.sent), len(alone.sent)) == (2, 3)


def test_whose_turn_does_not_come_in_time_is_given_up(wire: Wire, channel: Channel) -> None:
    suspects = Suspects(wire.half.services.runtime.loop, cast(Any, channel))
    until = wire.half.loop.time() + 5
    first, second = (suspects.send(CreateTopicsRequest(), 30_000, until) for _ in range(2))
    wire.half.loop.advance(5)
    with pytest.raises(TimeoutError):
        second.result()
    assert not first.done()
    channel.sent[0].set_result("answer")
    wire.half.loop.settle()
    assert (first.result(), len(channel.sent)) == ("answer", 1)


class NoController:
    """Every request fails at once."""

    def __init__(self, wire: Wire, error: Exception) -> None:
        self.wire = wire
        self.error = error
        self.count = 0
        wire.half.services.controller_channel = cast(Any, self)

    def send(self, request: Any, timeout_ms: int) -> asyncio.Future[Any]:
        self.count += 1
        future: asyncio.Future[Any] = self.wire.half.services.runtime.loop.create_future()
        future.set_exception(self.error)
        return future


def answered(pending: Any, version: int) -> Any:
    """The answer, brought through its bytes."""
    frame = memoryview(b"".join(pending.encode(pending.future.result())))
    return decode_response(pending._row.key, version, frame[4:])[1]


def test_without_a_controller_a_request_times_out_after_a_minute_as_in_apache_kafka(wire: Wire) -> None:
    """It closed the connection, and no client knew why."""
    channel = NoController(wire, Disconnected("no controller is known"))
    pending = wire.send(CreateTopicsRequest(topics=[CreatableTopic(name="t"), CreatableTopic(name="u")]))
    wire.half.loop.advance(forwarding.TIMEOUT_MS / 1000 - 1)
    assert not pending.future.done()
    assert channel.count > 100
    wire.half.loop.advance(1.1)
    found = [(topic.name, topic.error_code, topic.error_message) for topic in answered(pending, 7).topics]
    assert found == [("t", ErrorCode.REQUEST_TIMED_OUT, None), ("u", ErrorCode.REQUEST_TIMED_OUT, None)]


def test_a_silent_controller_is_asked_again_after_half_of_the_time(wire: Wire, channel: Channel) -> None:
    pending = wire.send(CreateTopicsRequest(topics=[CreatableTopic(name="t")]))
    assert channel.timeouts_ms == [30_000]
    wire.half.loop.advance(30)
    channel.sent[0].set_exception(TimeoutError("no answer"))
    wire.half.loop.advance(forwarding.RETRY_SECONDS)
    # Not what is left: others wait on the same connection, and a peer that is silent for so long loses it.
    assert channel.timeouts_ms == [30_000, 30_000]
    wire.half.loop.advance(30)
    channel.sent[1].set_exception(TimeoutError("no answer"))
    wire.half.loop.settle()
    assert answered(pending, 7).topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_controller_without_envelopes_is_a_server_error(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    channel = NoController(wire, UnsupportedVersion("the peer does not serve Envelope"))
    pending = wire.send(CreateTopicsRequest(topics=[CreatableTopic(name="t")]))
    wire.half.loop.settle()
    assert answered(pending, 7).topics[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert channel.count == 1
    assert "the peer does not serve Envelope" in caplog.text


def test_a_refused_envelope_is_a_server_error(wire: Wire, channel: Channel, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    pending = wire.send(CreateTopicsRequest(topics=[CreatableTopic(name="t")]))
    channel.sent[0].set_result(EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    wire.half.loop.settle()
    assert answered(pending, 7).topics[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "error 31" in caplog.text


def test_a_version_that_the_controller_does_not_serve_ends_the_connection(wire: Wire, channel: Channel) -> None:
    """The client asks for versions again then."""
    pending = wire.send(CreateTopicsRequest(topics=[CreatableTopic(name="t")]))
    channel.sent[0].set_result(EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
    wire.half.loop.settle()
    assert isinstance(pending.future.exception(), CloseConnection)


#: A request that names two things wherever it can name any, and where the codes stand in the answer.
REFUSED: dict[int, tuple[TopLevel, Callable[[Any], list[int]]]] = {
    ApiKey.CREATE_TOPICS: (
        CreateTopicsRequest(topics=[CreatableTopic(name="t"), CreatableTopic(name="u")]),
        lambda answer: [topic.error_code for topic in answer.topics],
    ),
    ApiKey.DELETE_TOPICS: (
        DeleteTopicsRequest(topic_names=["t", "u"], topics=[DeleteTopicState(name="t"), DeleteTopicState(name="u")]),
        lambda answer: [topic.error_code for topic in answer.responses],
    ),
    ApiKey.CREATE_ACLS: (
        CreateAclsRequest(creations=2 * [ACL]),
        lambda answer: [result.error_code for result in answer.results],
    ),
    ApiKey.DELETE_ACLS: (
        DeleteAclsRequest(filters=2 * [ACL_FILTER]),
        lambda answer: [result.error_code for result in answer.filter_results],
    ),
    ApiKey.ALTER_CONFIGS: (
        AlterConfigsRequest(resources=[AlterConfigsResource(resource_type=2, resource_name=name) for name in "tu"]),
        lambda answer: [result.error_code for result in answer.responses],
    ),
    ApiKey.CREATE_PARTITIONS: (
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, assignments=None) for name in "tu"]),
        lambda answer: [result.error_code for result in answer.results],
    ),
    ApiKey.ELECT_LEADERS: (
        ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0, 1])]),
        lambda answer: [one.error_code for one in answer.replica_election_results[0].partition_result],
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        IncrementalAlterConfigsRequest(
            resources=[IncrementalResource(resource_type=2, resource_name=name) for name in "tu"]
        ),
        lambda answer: [result.error_code for result in answer.responses],
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (
        AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name="t", mechanism=1)],
            upsertions=[ScramCredentialUpsertion(name="u", mechanism=1, iterations=4096)],
        ),
        lambda answer: [result.error_code for result in answer.results],
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (
        AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=i) for i in range(2)])
            ]
        ),
        lambda answer: [one.error_code for one in answer.responses[0].partitions],
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (
        ListPartitionReassignmentsRequest(
            topics=[ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 1])]
        ),
        lambda answer: len(answer.topics[0].partitions) * [answer.error_code],
    ),
    ApiKey.DESCRIBE_QUORUM: (DescribeQuorumRequest(), lambda answer: 2 * [answer.error_code]),
    ApiKey.UPDATE_FEATURES: (UpdateFeaturesRequest(), lambda answer: 2 * [answer.error_code]),
    ApiKey.ADD_RAFT_VOTER: (AddRaftVoterRequest(), lambda answer: 2 * [answer.error_code]),
    ApiKey.REMOVE_RAFT_VOTER: (RemoveRaftVoterRequest(), lambda answer: 2 * [answer.error_code]),
    ApiKey.UNREGISTER_BROKER: (UnregisterBrokerRequest(), lambda answer: 2 * [answer.error_code]),
    ApiKey.UNREGISTER_CONTROLLER: (UnregisterControllerRequest(), lambda answer: 2 * [answer.error_code]),
}


@pytest.mark.parametrize("key", [api.key for api in TABLE if api.forward], ids=lambda key: key.name)
def test_each_request_that_is_forwarded_has_an_answer_without_a_controller(wire: Wire, key: ApiKey) -> None:
    request, codes = REFUSED[key]
    NoController(wire, UnsupportedVersion("no"))
    for version in range(request.MIN_VERSION, request.MAX_VERSION + 1):
        pending = wire.send(_in(request, version), version)
        wire.half.loop.settle()
        assert codes(answered(pending, version)) == 2 * [ErrorCode.UNKNOWN_SERVER_ERROR], version


def _in(request: TopLevel, version: int) -> TopLevel:
    """Without the fields that this version does not have."""
    if isinstance(request, DeleteTopicsRequest):
        return DeleteTopicsRequest(
            topic_names=request.topic_names if version < 6 else [], topics=request.topics if version >= 6 else []
        )
    return request


def test_a_bug_of_the_controller_is_not_asked_for_again(
    wire: Wire, channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    """Before, the request was sent again twenty times a second for half a minute, and no line named the bug."""
    pending = wire.send(CreateTopicsRequest())
    with caplog.at_level(logging.ERROR):
        channel.sent[0].set_exception(ZeroDivisionError())
        wire.half.loop.settle()
    assert isinstance(pending.future.exception(), CloseConnection)
    assert "ZeroDivisionError" in caplog.text
    wire.half.loop.advance(1)
    assert len(channel.sent) == 1


def test_whose_client_has_left_is_not_asked_for_again(wire: Wire, channel: Channel) -> None:
    pending = wire.send(CreateTopicsRequest())
    pending.future.cancel()
    channel.sent[0].set_exception(Disconnected("gone"))
    wire.half.loop.advance(1)
    assert len(channel.sent) == 1


def test_a_frame_that_does_not_fit_into_an_envelope_is_refused_at_the_broker(wire: Wire, channel: Channel) -> None:
    services = wire.half.services
    services.config = with_overrides(services.config, {"socket.request.max.bytes": "4000"})
    pending = wire.send(CreateTopicsRequest(topics=[CreatableTopic(name="t" * 249) for _ in range(15)]))
    assert not channel.requests
    wire.half.loop.settle()
    assert {topic.error_code for topic in pending.future.result().topics} == {ErrorCode.INVALID_REQUEST}
    wire.send(CreateTopicsRequest(topics=[CreatableTopic(name="t")]))
    assert len(channel.requests) == 1


def test_a_change_of_a_broker_is_not_judged_for_a_client_that_may_not_make_it(wire: Wire, channel: Channel) -> None:
    wire.half.services.authorizer = DenyAll()
    key = AlterableConfig(name="num.io.threads", config_operation=0, value="no number")
    own = IncrementalResource(resource_type=BROKER, resource_name="1", configs=[key])
    frame = b"".join(wire.send(IncrementalAlterConfigsRequest(resources=[own])))
    answer: Any = decode_response(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, frame[4:])[1]
    assert [each.error_code for each in answer.responses] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    assert not channel.requests
