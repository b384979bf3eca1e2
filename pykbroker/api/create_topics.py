"""CreateTopics, versions 2-7, on the active controller. KIP-464 defaults, KIP-525 configuration in the answer.

`timeout_ms` has no effect, because the response comes when the topic is committed. Controller mutation quotas are not
served.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from pykbroker.controller.result import Result
from pykbroker.controller.state import ControllerState
from pykbroker.controller.topics import create_topics
from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.on_controller import respond
from pykbroker.dispatch.rows import Handlers
from pykbroker.metadata.topic_names import METADATA_TOPIC
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse


def handle(ctx: ControllerContext, request: CreateTopicsRequest) -> asyncio.Future[CreateTopicsResponse]:
    names = [topic.name for topic in request.topics]
    counts = Counter(names)
    once = [name for name, count in counts.items() if count == 1]
    allowed = [name for name in once if name != METADATA_TOPIC]
    if not ctx.authorize(Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME, quiet=True):
        creatable = {name for name in allowed if ctx.authorize(Operation.CREATE, Resource.TOPIC, name)}
    else:
        creatable = set(allowed)
    describable = {
        name for name in allowed if ctx.authorize(Operation.DESCRIBE_CONFIGS, Resource.TOPIC, name, quiet=True)
    }
    wanted = CreateTopicsRequest(
        topics=[topic for topic in request.topics if topic.name in creatable],
        timeout_ms=request.timeout_ms,
        validate_only=request.validate_only,
    )

    def operation(state: ControllerState, now_ms: int) -> Result[CreateTopicsResponse]:
        return create_topics(state, wanted, describable)

    def answer(response: CreateTopicsResponse) -> CreateTopicsResponse:
        for name, count in counts.items():
            if count > 1:
                response.topics.append(_failed(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        for name in once:
            if name == METADATA_TOPIC:
                message = f"Creation of internal topic {METADATA_TOPIC} is prohibited."
                response.topics.append(_failed(name, ErrorCode.INVALID_REQUEST, message))
            elif name not in creatable:
                message = "Authorization failed."
                response.topics.append(_failed(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, message))
        return response

    return respond(
        ctx,
        ctx.services.controller.submit("CreateTopics", operation, takes_room=True),
        answer,
        lambda error: refused(request, ctx.api_version, error.code, error.message),
    )


def refused(
    request: CreateTopicsRequest, version: int, code: ErrorCode, message: str | None = None
) -> CreateTopicsResponse:
    """Return the response to a request that failed as a whole."""
    return CreateTopicsResponse(topics=[_failed(topic.name, code, message) for topic in request.topics])


def _failed(name: str, code: ErrorCode, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message)


HANDLERS = Handlers(handle, refused=refused)
