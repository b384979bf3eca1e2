"""DeleteTopics, versions 1-6, on the active controller; by name, from version 6 by topic id too (KIP-516)."""

from __future__ import annotations

import asyncio
from collections import Counter

from pykbroker.controller.result import Result, Verdict, failure
from pykbroker.controller.state import ControllerState
from pykbroker.controller.topics import delete_topics
from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.on_controller import immediately, respond
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from pykbroker_wire.primitives import ZERO_UUID

DeletedTopics = list[DeletableTopicResult]


def handle(ctx: ControllerContext, request: DeleteTopicsRequest) -> asyncio.Future[DeleteTopicsResponse]:
    if not ctx.services.config.bool("delete.topic.enable"):
        old = ctx.api_version < 3
        code = ErrorCode.INVALID_REQUEST if old else ErrorCode.TOPIC_DELETION_DISABLED
        return immediately(refused(request, ctx.api_version, code))
    results: DeletedTopics = []
    names, ids = _wanted(request, results)

    def operation(state: ControllerState, now_ms: int) -> Result[DeletedTopics]:
        chosen = _authorized(ctx, state, names, ids, results)
        deleted = delete_topics(state, chosen)
        results.extend(_result(chosen[topic_id], topic_id, verdict) for topic_id, verdict in deleted.response.items())
        # The order must not show whether a topic does not exist or is only hidden from the client.
        state.random.shuffle(results)
        return Result(results, deleted.records)

    return respond(
        ctx,
        ctx.services.controller.submit("DeleteTopics", operation),
        lambda found: DeleteTopicsResponse(responses=found),
        lambda error: refused(request, ctx.api_version, error.code),
    )


def _wanted(request: DeleteTopicsRequest, results: DeletedTopics) -> tuple[list[str], list[bytes]]:
    """Return the names and ids that the request has once. `results` gets the errors of the others."""
    names: Counter[str] = Counter(request.topic_names)
    ids: Counter[bytes] = Counter()
    for topic in request.topics:
        if topic.name is None and topic.topic_id == ZERO_UUID:
            results.append(_invalid(None, ZERO_UUID, "Neither topic name nor id were specified."))
        elif topic.name is None:
            ids[topic.topic_id] += 1
        elif topic.topic_id == ZERO_UUID:
            names[topic.name] += 1
        else:
            results.append(_invalid(topic.name, topic.topic_id, "You may not specify both topic name and topic id."))
    results.extend(_invalid(name, ZERO_UUID, "Duplicate topic name.") for name, count in names.items() if count > 1)
    results.extend(_invalid(None, topic_id, "Duplicate topic id.") for topic_id, count in ids.items() if count > 1)
    return [n for n, count in names.items() if count == 1], [i for i, count in ids.items() if count == 1]


def _authorized(
    ctx: ControllerContext, state: ControllerState, names: list[str], ids: list[bytes], results: DeletedTopics
) -> dict[bytes, str]:
    """Return ids and names of topics that may be deleted. `results` gets the errors of the others, and they reveal no
    hidden topic."""
    topics = state.image.topics
    everything = ctx.authorize(Operation.DELETE, Resource.CLUSTER, CLUSTER_NAME, quiet=True)

    def may(operation: Operation, name: str) -> bool:
        return everything or ctx.authorize(operation, Resource.TOPIC, name)

    chosen: dict[bytes, str] = {}
    for topic_id in ids:
        topic = topics.by_id.get(topic_id)
        if topic is None:
            results.append(_result(None, topic_id, failure(ErrorCode.UNKNOWN_TOPIC_ID)))
        elif may(Operation.DELETE, topic.name):
            chosen[topic_id] = topic.name
        else:
            name = topic.name if may(Operation.DESCRIBE, topic.name) else None
            results.append(_result(name, topic_id, failure(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
    for name in names:
        topic = topics.by_name.get(name)
        if not may(Operation.DESCRIBE, name):
            results.append(_result(name, ZERO_UUID, failure(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
        elif topic is None:
            results.append(_result(name, ZERO_UUID, failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
        elif not may(Operation.DELETE, name):
            results.append(_result(name, ZERO_UUID, failure(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
        elif topic.id in chosen:
            del chosen[topic.id]
            results.append(_invalid(name, topic.id, "The provided topic name maps to an ID that was already supplied."))
        else:
            chosen[topic.id] = name
    return chosen


def _result(name: str | None, topic_id: bytes, verdict: Verdict) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=verdict.code, error_message=verdict.message)


def _invalid(name: str | None, topic_id: bytes, message: str) -> DeletableTopicResult:
    return _result(name, topic_id, failure(ErrorCode.INVALID_REQUEST, message))


def refused(request: DeleteTopicsRequest, version: int, code: ErrorCode) -> DeleteTopicsResponse:
    """Return the response to a request that failed as a whole. It has no messages, as in Apache Kafka."""
    wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    wanted += [(name, ZERO_UUID) for name in request.topic_names]
    return DeleteTopicsResponse(
        responses=[DeletableTopicResult(name=name, topic_id=topic_id, error_code=code) for name, topic_id in wanted]
    )


HANDLERS = Handlers(handle, refused=refused)
