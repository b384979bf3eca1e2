"""Topics that a node creates when it starts (`pykbroker.create.topics`), if they do not exist.

The requests are CreateTopics on the controller's channel, like those of any client. If a creation fails because the
cluster still has too few brokers or no controller, it is tried again until the topic exists or the node stops. After
any other failure there is one line in the log and no new try.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from pykbroker.config.topics_to_create import InitialTopic, parse_initial_topics
from pykbroker.dispatch.services import BrokerServices
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

logger = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 0.5
#: temporary errors, because brokers and controllers may still start
_PASSING: Final = frozenset(
    {ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT}
)


class InitialTopics:
    """Call `start` once and `close` once."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._timeout_ms = services.config.int("request.timeout.ms")
        self._missing = {
            topic.name: topic for topic in parse_initial_topics(services.config.list("pykbroker.create.topics"))
        }
        self._tried: asyncio.Future[None] = services.runtime.loop.create_future()
        self._waits: frozenset[str] = frozenset()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def start(self) -> asyncio.Future[None]:
        """Return a future that is done when the first attempt has its answers and this broker's metadata has the new
        topics."""
        self._try()
        return self._tried

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._tried.cancel()

    def _try(self) -> None:
        self._timer = None
        known = self._services.metadata.image.topics.by_name
        self._missing = {name: topic for name, topic in self._missing.items() if name not in known}
        if not self._missing:
            self._end_try()
            return
        request = CreateTopicsRequest(topics=_creatable(self._missing.values()), timeout_ms=self._timeout_ms)
        self._services.controller_channel.send(request, self._timeout_ms).add_done_callback(self._answered)

    def _answered(self, sent: asyncio.Future[CreateTopicsResponse]) -> None:
        if self._closed:
            return
        failure = None if sent.cancelled() else sent.exception()
        if sent.cancelled() or failure is not None:
            self._try_again(frozenset(self._missing), repr(failure))
            return
        made, waiting = [], {}
        for result in sent.result().topics:
            code = ErrorCode.received(result.error_code)
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                made.append(result.name)
            elif code in _PASSING:
                waiting[result.name] = result.error_message or code.name
            else:
                logger.warning(
                    "Topic %s of pykbroker.create.topics is not created: %s",
                    result.name,
                    result.error_message or code.name,
                )
                self._missing.pop(result.name, None)
        if waiting:
            self._try_again(frozenset(waiting), next(iter(waiting.values())))
        elif made:
            logger.info("Topics of pykbroker.create.topics exist now: %s", ", ".join(sorted(made)))
            self._when_known(made)
        else:
            self._end_try()

    def _when_known(self, names: list[str]) -> None:
        """Wait until this broker's metadata has the topics. It may get them a moment later than the controller, or
        never if they are deleted at once."""
        there = self._services.metadata.when(lambda image: all(name in image.topics.by_name for name in names))
        timer = self._services.runtime.loop.call_later(self._timeout_ms / 1000, there.cancel)

        def known(future: asyncio.Future[None]) -> None:
            timer.cancel()
            self._end_try()

        there.add_done_callback(known)

    def _try_again(self, names: frozenset[str], why: str) -> None:
        if names != self._waits:
            logger.warning(
                "Topics of pykbroker.create.topics that cannot be created yet: %s: %s", ", ".join(sorted(names)), why
            )
            self._waits = names
        self._timer = self._services.runtime.loop.call_later(_PAUSE_SECONDS, self._try)
        self._end_try()

    def _end_try(self) -> None:
        if not self._tried.done():
            self._tried.set_result(None)


def _creatable(topics: Iterable[InitialTopic]) -> list[CreatableTopic]:
    """Return the topics for the request. -1 stands for num.partitions and default.replication.factor of the controller
    (KIP-464)."""
    return [
        CreatableTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()],
        )
        for topic in topics
    ]
