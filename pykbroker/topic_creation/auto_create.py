"""Create topics when they are first used: topics of clients, Kafka's internal topics, and dead letter topics.

The requests are CreateTopics on the controller's channel, like those of any client. While the creation of a topic is
under way, no other request for it is sent. A creation that fails is tried again each time that a client asks, and
logged once a minute. Not responsible for authorization.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial

from pykbroker.config.typed_config import Config
from pykbroker.dead_letters.letter_topics import CREATED_TOPIC_CONFIG
from pykbroker.dispatch.services import BrokerServices
from pykbroker.dispatch.topic_creations import TopicCreations
from pykbroker.metadata.topic_names import (
    GROUP_METADATA_TOPIC,
    INTERNAL_TOPICS,
    SHARE_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    topic_name_problem,
)
from pykbroker.runtime.line_limit import LineLimit
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

logger = logging.getLogger(__name__)

_MOST_NAMED = 20
#: The key with the replication factor of each internal topic.
_FACTOR_KEYS = {
    GROUP_METADATA_TOPIC: "offsets.topic.replication.factor",
    TRANSACTION_STATE_TOPIC: "transaction.state.log.replication.factor",
    SHARE_STATE_TOPIC: "share.coordinator.state.topic.replication.factor",
}


def ensure_topic(services: BrokerServices, name: str) -> asyncio.Future[ErrorCode]:
    """Create the topic if it does not exist. Return a future, which gets NONE once this broker's metadata has the
    topic, or gets the error.

    The error is LEADER_NOT_AVAILABLE if the controller does not answer or has changed, or if the topic does not come
    into this broker's metadata within request.timeout.ms. An invalid name gives INVALID_TOPIC_EXCEPTION. Other errors
    are the controller's.
    """
    return create_missing(services, [name])[name]


def create_dead_letter_topic(services: BrokerServices, name: str) -> asyncio.Future[ErrorCode]:
    """Do the same as `ensure_topic` for the dead letter topic of a share group (KIP-1191). As in Apache Kafka 4.4, the
    controller chooses the number of partitions and the replication factor."""
    return create_missing(services, [name], _dead_letter_topic)[name]


def create_missing(
    services: BrokerServices,
    names: Iterable[str],
    creatable: Callable[[BrokerServices, str], CreatableTopic] | None = None,
) -> dict[str, asyncio.Future[ErrorCode]]:
    """Do the same as `ensure_topic` for many topics in one request. `creatable` returns the topic to create; by default
    it is Kafka's internal topic of this name, or a topic with the broker's defaults."""
    loop = services.runtime.loop
    in_flight = services.topic_creations.in_flight
    futures: dict[str, asyncio.Future[ErrorCode]] = {}
    wanted: list[str] = []
    for name in names:
        under_way = in_flight.get(name)
        if under_way is not None:
            futures[name] = under_way
            continue
        future = futures[name] = loop.create_future()
        if name in services.metadata.image.topics.by_name:
            future.set_result(ErrorCode.NONE)
        elif topic_name_problem(name) is not None:
            future.set_result(ErrorCode.INVALID_TOPIC_EXCEPTION)
        else:
            in_flight[name] = future
            wanted.append(name)
    if wanted:
        _create(services, [(creatable or _creatable)(services, name) for name in wanted])
    return futures


def _create(services: BrokerServices, topics: list[CreatableTopic]) -> None:
    names = [topic.name for topic in topics]
    creations = services.topic_creations
    timeout_ms = services.config.int("request.timeout.ms")
    request = CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms)

    def finish(name: str, code: ErrorCode) -> None:
        future = creations.in_flight.pop(name, None)
        if future is not None and not future.done():
            future.set_result(code)

    def answered(sent: asyncio.Future[CreateTopicsResponse]) -> None:
        error = None if sent.cancelled() else sent.exception()
        if sent.cancelled() or error is not None:
            _say(creations, "no answer", logging.WARNING, "Auto creation of topics %s failed: %r", _some(names), error)
            for name in names:
                finish(name, ErrorCode.LEADER_NOT_AVAILABLE)
            return
        verdicts = {result.name: result for result in sent.result().topics}
        for name in names:
            result = verdicts.get(name)
            code = ErrorCode.LEADER_NOT_AVAILABLE if result is None else ErrorCode.received(result.error_code)
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                _when_known(services, name, partial(finish, name))
                continue
            if code is ErrorCode.NOT_CONTROLLER:
                code = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                message = None if result is None else result.error_message
                key = _FACTOR_KEYS.get(name)
                if key is not None and code is ErrorCode.INVALID_REPLICATION_FACTOR:
                    message = f"{message or code.message} The factor is that of {key}."
                # A client may choose a new name each time, so such lines are limited by the error and not by the name.
                subject = name if name in INTERNAL_TOPICS else code.name
                _say(creations, subject, logging.WARNING, "Auto creation of topic %s failed: %s", name, message)
            finish(name, code)

    line = "Sent auto-creation request for %s to the active controller."
    _say(creations, f"sent {_some(names)}", logging.INFO, line, _some(names))
    services.controller_channel.send(request, timeout_ms).add_done_callback(answered)


def _say(creations: TopicCreations, subject: str, level: int, line: str, *args: object) -> None:
    left_out = creations.lines.take(subject)
    if left_out is not None:
        logger.log(level, line + "%s", *args, left_out)


def _some(names: list[str]) -> str:
    """Return the names as text, but only the first names if there are very many."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _when_known(services: BrokerServices, name: str, done: Callable[[ErrorCode], None]) -> None:
    """Call `done` once this broker's metadata has the topic, which may be a moment after the controller has created it.
    After request.timeout.ms call it with LEADER_NOT_AVAILABLE."""
    known = services.metadata.when(lambda image: name in image.topics.by_name)
    timer = services.runtime.loop.call_later(services.config.int("request.timeout.ms") / 1000, known.cancel)

    def finished(future: asyncio.Future[None]) -> None:
        timer.cancel()
        done(ErrorCode.LEADER_NOT_AVAILABLE if future.cancelled() else ErrorCode.NONE)

    known.add_done_callback(finished)


def internal_number(config: Config, key: str, *, only_voter: bool, brokers: int, lines: LineLimit | None = None) -> int:
    """Return the replication factor or the least ISR of an internal topic, as configured. It is 1 if the key is not
    set, this combined node is the only voter, and one broker is registered.

    In any other cluster more brokers may still register. Then a topic that was created before would keep a single
    replica. `lines` limits the log line, because each new try calls this again.
    """
    number = config.int(key)
    alone = config.is_broker and config.is_controller and only_voter and brokers == 1
    if number == 1 or not config.is_default(key) or not alone:
        return number
    if lines is None or lines.take(key) is not None:
        logger.warning("%s is 1 instead of %d: it is not set, and this node is the whole cluster", key, number)
    return 1


def _creatable(services: BrokerServices, name: str) -> CreatableTopic:
    config = services.config

    def number(key: str) -> int:
        brokers = len(services.metadata.image.brokers)
        lines = services.topic_creations.lines
        return internal_number(config, key, only_voter=services.quorum.is_only_voter, brokers=brokers, lines=lines)

    match name:
        case "__consumer_offsets":
            assert name == GROUP_METADATA_TOPIC
            partitions = config.int("offsets.topic.num.partitions")
            factor = number(_FACTOR_KEYS[name])
            # The value "producer" keeps batches compressed as the coordinator wrote them.
            configs = {
                "cleanup.policy": "compact",
                "segment.bytes": str(config.int("offsets.topic.segment.bytes")),
                "compression.type": "producer",
            }
        case "__transaction_state":
            assert name == TRANSACTION_STATE_TOPIC
            partitions = config.int("transaction.state.log.num.partitions")
            factor = number(_FACTOR_KEYS[name])
            configs = {
                "cleanup.policy": "compact",
                "segment.bytes": str(config.int("transaction.state.log.segment.bytes")),
                "compression.type": "uncompressed",
                "unclean.leader.election.enable": "false",
                "min.insync.replicas": str(number("transaction.state.log.min.isr")),
            }
        case "__share_group_state":
            assert name == SHARE_STATE_TOPIC
            partitions = config.int("share.coordinator.state.topic.num.partitions")
            factor = number(_FACTOR_KEYS[name])
            configs = {
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "segment.bytes": str(config.int("share.coordinator.state.topic.segment.bytes")),
                "min.insync.replicas": str(number("share.coordinator.state.topic.min.isr")),
                "retention.ms": "-1",
            }
        case _:
            partitions = config.int("num.partitions")
            factor = config.int("default.replication.factor")
            configs = {}
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )


def _dead_letter_topic(services: BrokerServices, name: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in CREATED_TOPIC_CONFIG.items()],
    )
