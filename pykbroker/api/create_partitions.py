"""CreatePartitions, versions 0-3, on the active controller. KIP-195. Controller mutation quotas are not served."""

from __future__ import annotations

import asyncio
from collections import Counter

from pykbroker.controller.topics import create_partitions
from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.on_controller import respond
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)


def handle(ctx: ControllerContext, request: CreatePartitionsRequest) -> asyncio.Future[CreatePartitionsResponse]:
    names = [topic.name for topic in request.topics]
    counts = Counter(names)
    results = [
        CreatePartitionsTopicResult(
            name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name."
        )
        for name, count in counts.items()
        if count > 1
    ]
    topics = []
    for topic in request.topics:
        if counts[topic.name] > 1:
            continue
        if ctx.authorize(Operation.ALTER, Resource.TOPIC, topic.name):
            topics.append(topic)
        else:
            results.append(
                CreatePartitionsTopicResult(name=topic.name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            )
    return respond(
        ctx,
        ctx.services.controller.submit(
            "CreatePartitions",
            lambda state, now_ms: create_partitions(state, topics, request.validate_only),
            takes_room=True,
        ),
        lambda made: CreatePartitionsResponse(results=[*results, *made]),
        lambda error: refused(request, ctx.api_version, error.code, error.message),
    )


def refused(
    request: CreatePartitionsRequest, version: int, code: ErrorCode, message: str | None = None
) -> CreatePartitionsResponse:
    """Return the response to a request that failed as a whole."""
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
    )


HANDLERS = Handlers(handle, refused=refused)
