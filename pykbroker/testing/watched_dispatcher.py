"""A dispatcher that applies fault rules to each request, and records the requests of clients.

A node uses it in place of `Dispatcher` only if the caller passes it (`Node(make_dispatcher=...)`), as `Broker`,
`Cluster` and `pykbroker start --faults` do. While no rule is set and nothing is recorded, it passes every frame on
unchanged. Responsible for applying the action of a rule; not responsible for the choice of the rule (faults/).

It is between the listeners of the broker half and the handlers. Rules do not apply to requests to a controller, nor to
requests that come by `Node.call`. A request for share states that a broker sends to itself comes over a listener while
a rule may apply to it, and in memory otherwise.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import re
from collections.abc import Callable
from typing import Any

from pykbroker.dispatch.context import BrokerContext, Peer, RequestContext
from pykbroker.dispatch.dispatcher import Dispatcher, Forward, PendingAnswer
from pykbroker.dispatch.rows import EncodedAnswer, ForwardedResponse, Row
from pykbroker.dispatch.services import BrokerServices
from pykbroker.net.connection import CloseConnection
from pykbroker.net.promise import Promise
from pykbroker.replica.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH
from pykbroker.testing.faults.fault_rule import SeenRequest
from pykbroker.testing.faults.named_parts import error_codes, parts_in
from pykbroker.testing.faults.rewriting import ErrorAnswer, change, refused
from pykbroker.testing.faults.rule_set import ActingRule, Faults
from pykbroker.testing.traffic import RecordedRequest, Traffic
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.headers import RequestHeader, decode_response, encode_request
from pykbroker_wire.messages.api_versions import ApiVersionsResponse
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker_wire.primitives import DecodeError, EncodeError, Message, TopLevel

logger = logging.getLogger(__name__)

#: The client ids of brokers, pykbroker's and Apache Kafka's.
_BROKERS_CLIENT_ID = re.compile(r"broker-\d+(-fetcher-\d+)?")


class WatchedDispatcher(Dispatcher[BrokerServices]):
    """`faults` and `traffic` may be shared by the nodes of a cluster."""

    def __init__(
        self, services: BrokerServices, forward: Forward[BrokerServices], faults: Faults, traffic: Traffic
    ) -> None:
        super().__init__(services, forward)
        self._faults = faults
        self._traffic = traffic

    def __call__(self, peer: Peer, frame: memoryview) -> EncodedAnswer | PendingAnswer | None:
        if not self._faults.rules and not self._traffic.is_recording:
            return super().__call__(peer, frame)
        try:
            header, position = RequestHeader.decode(frame)
            row = self.rows.find(header.api_key)
            if row is None or not row.min_version <= header.version <= row.max_version:
                return super().__call__(peer, frame)
            if not self._traffic.is_recording and not self._faults.may_match(row.key):
                return super().__call__(peer, frame)
            # The frame is copied, because a request that is recorded or delayed is used after its frame is gone.
            kept = memoryview(bytes(frame))
            request, _ = row.decode(kept, position, header.version)
        except DecodeError:
            return super().__call__(peer, frame)
        seen = self._see(row, header, request)
        verdict = self._faults.judge(seen)
        recorded = None
        if self._traffic.is_recording and not seen.between_brokers:
            recorded = self._record(row, seen, len(frame))
        if verdict is None and recorded is None:
            return super().__call__(peer, frame)
        ctx: BrokerContext = RequestContext(
            peer,
            self.services,
            row.key,
            header.version,
            header.correlation_id,
            header.client_id,
            self._now_ms(),
            len(frame),
        )
        result = _Exchange(self, row, ctx, seen, verdict, recorded).run(kept)
        if type(result) is not bytes and isinstance(result, asyncio.Future | Promise):
            return PendingAnswer(self, row, ctx, result)
        return self.finish(row, ctx, result)

    def takes_in_memory(self, key: int) -> bool:
        """Return False while a rule may apply to this API, because rules act on frames."""
        return not self._faults.may_match(key)

    def _see(self, row: Row, header: RequestHeader, request: Any) -> SeenRequest:
        topics = self.services.metadata.image.topics

        def name_of(topic_id: bytes) -> str | None:
            image = topics.by_id.get(topic_id)
            return None if image is None else image.name

        client_id = header.client_id
        return SeenRequest(
            row.key,
            header.version,
            client_id,
            self.services.node_id,
            tuple(parts_in(row.key, header.version, self._in_full(header.version, request), name_of)),
            request,
            client_id is not None and _BROKERS_CLIENT_ID.fullmatch(client_id) is not None,
        )

    def _in_full(self, version: int, request: TopLevel) -> TopLevel:
        """Return the request with the topics and partitions that it does not name itself: a Fetch gets the partitions
        of its session, and a Metadata request for all topics gets the names of all topics."""
        if isinstance(request, FetchRequest) and request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            return self._with_session(request)
        if isinstance(request, MetadataRequest) and (request.topics is None or (version == 0 and not request.topics)):
            image = self.services.metadata.image.topics
            return MetadataRequest(
                topics=[MetadataRequestTopic(name=name, topic_id=topic.id) for name, topic in image.by_name.items()]
            )
        return request

    def _with_session(self, request: FetchRequest) -> FetchRequest:
        asked = {
            (topic.topic, topic.topic_id, one.partition): None for topic in request.topics for one in topic.partitions
        }
        gone = {
            (topic.topic, topic.topic_id, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        }
        session = self.services.fetch_sessions.peek(request.session_id)
        for entry in () if session is None else session.partitions.values():
            key = (entry.topic or "", entry.topic_id, entry.index)
            if key not in gone:
                asked.setdefault(key)
        return FetchRequest(
            topics=[
                FetchTopic(topic=name, topic_id=topic_id, partitions=[FetchPartition(partition=index)])
                for name, topic_id, index in asked
            ]
        )

    def _record(self, row: Row, seen: SeenRequest, size: int) -> RecordedRequest:
        recorded = RecordedRequest(
            row.name,
            seen.version,
            seen.client_id,
            seen.node,
            tuple({part.topic: None for part in seen.parts if part.topic is not None}),
            seen.request,
            self._now_ms(),
            size,
        )
        self._traffic.add(recorded)
        return recorded

    def carry_out(self, row: Row, ctx: BrokerContext, request: Any, frame: memoryview) -> Any:
        """Execute a request as if its API had no `handle_frame`; returns the response, or a future or promise of it."""
        if row.api.forward and self._forward is not None:
            if row.check is not None:
                row.check(request)
            return self._forward(row, ctx, frame)
        return self._run(row, row.handle, ctx, request)

    def now_ms(self) -> int:
        """Return the wall-clock time."""
        return self._now_ms()


class _Exchange:
    """One request on which a rule acts, or which is recorded, from its arrival to its answer."""

    def __init__(
        self,
        dispatcher: WatchedDispatcher,
        row: Row,
        ctx: BrokerContext,
        seen: SeenRequest,
        verdict: ActingRule | None,
        recorded: RecordedRequest | None,
    ) -> None:
        self._dispatcher = dispatcher
        self._row = row
        self._ctx = ctx
        self._seen = seen
        self._verdict = verdict
        self._recorded = recorded
        self._refused: ErrorAnswer | None = None

    def run(self, frame: memoryview) -> Any:
        """Return the response, a future or promise of it, or None if nothing is answered. Raises CloseConnection."""
        verdict, request = self._verdict, self._seen.request
        if verdict is not None:
            rule = verdict.rule
            logger.debug("Fault %d acts on a %s request of %s", verdict.number, self._row.name, self._ctx.client_id)
            if (rule.drop or rule.disconnect) and not rule.carried_out:
                return self._end(None)
            if rule.error is not None:
                self._refused = refused(rule, self._seen, verdict.chosen)
                if self._refused is None:
                    logger.warning(
                        "Fault %d does nothing: the answer to this %s request of version %d has no place for %s",
                        verdict.number,
                        self._row.name,
                        self._seen.version,
                        rule.error.name,
                    )
                elif self._refused.rest is None:
                    return self._end(None)
                elif self._refused.rest is not request:
                    request = self._refused.rest
                    frame = self._frame_of(request)
                elif isinstance(request, FetchRequest):
                    # The answer gets an error, so the fetch must not wait for records.
                    request = _at_once(request)
        result = self._dispatcher.carry_out(self._row, self._ctx, request, frame)
        if isinstance(result, asyncio.Future | Promise):
            return self._later(result)
        return self._end(result)

    def _frame_of(self, request: Any) -> memoryview:
        ctx = self._ctx
        parts = encode_request(ctx.api_key, ctx.api_version, ctx.correlation_id, ctx.client_id, request)
        return memoryview(b"".join(parts))[4:]

    def _later(self, result: asyncio.Future[Any] | Promise) -> Promise:
        promise = Promise()
        cancel: Callable[[], Any] = result.cancel
        promise.when_cancelled(cancel)

        def there(done: Any) -> None:
            if done.cancelled():
                promise.set_exception(asyncio.CancelledError())
            elif (error := done.exception()) is not None:
                promise.set_exception(error)
            else:
                self._settle(promise, lambda: self._end(done.result()))

        result.add_done_callback(there)
        return promise

    @staticmethod
    def _settle(promise: Promise, end: Callable[[], Any]) -> None:
        try:
            answer = end()
        except Exception as error:  # noqa: BLE001  # the connection handles CloseConnection, and logs other errors
            promise.set_exception(error)
            return
        if isinstance(answer, Promise):
            answer.add_done_callback(lambda done: _pass_on(done, promise))
            promise.when_cancelled(answer.cancel)
        else:
            promise.set_result(answer)

    def _end(self, response: Any) -> Any:
        """Return the answer for the client, made from the broker's answer `response`. That is None if the request was
        not executed, or if the client waits for no answer. Raises CloseConnection."""
        verdict = self._verdict
        if verdict is None:
            return self._noted(response)
        rule = verdict.rule
        if rule.drop:
            # Later answers of this connection wait for this one, because answers are sent in the order of the requests.
            return None if self._wants_no_answer else Promise()
        if rule.disconnect:
            return self._delayed(lambda: self._close(f"fault {verdict.number} says so"))
        if self._refused is not None:
            if self._wants_no_answer:
                # As in Apache Kafka: only a closed connection can notify a producer that waits for no answer.
                return self._delayed(
                    lambda: self._close(f"fault {verdict.number}: an error of a request that wants no answer")
                )
            response = self._refused.answer(self._row.key, self._decoded(response))
            if isinstance(response, ApiVersionsResponse) and response.error_code == ErrorCode.UNSUPPORTED_VERSION:
                # KIP-511: a client decodes this answer in version 0, even if it requested another version.
                response.api_keys = [
                    one for one in self._dispatcher.rows.advertised if one.api_key == ApiKey.API_VERSIONS
                ]
                self._ctx.api_version = 0
        elif rule.change and response is not None:
            response = self._changed(verdict, self._decoded(response))
        return self._delayed(lambda: self._noted(response))

    @property
    def _wants_no_answer(self) -> bool:
        return self._row.key == ApiKey.PRODUCE and getattr(self._seen.request, "acks", 1) == 0

    def _changed(self, verdict: ActingRule, response: Any) -> Any:
        response = change(verdict.rule, self._seen, verdict.chosen, response)
        try:
            response.encode(self._seen.version)
        except EncodeError as error:
            raise CloseConnection(
                f"fault {verdict.number}: version {self._seen.version} of {self._row.name} cannot say this: {error}"
            ) from None
        return response

    def _decoded(self, response: Any) -> Any:
        if isinstance(response, ForwardedResponse):
            return decode_response(self._row.key, self._seen.version, response.data)[1]
        return response

    def _delayed(self, end: Callable[[], Any]) -> Any:
        delay_ms = 0 if self._verdict is None else self._verdict.rule.delay_ms
        if not delay_ms:
            return end()
        promise = Promise()
        loop = self._ctx.services.runtime.loop
        timer = loop.call_later(delay_ms / 1000, lambda: self._settle(promise, end))
        promise.when_cancelled(timer.cancel)
        return promise

    @staticmethod
    def _close(reason: str) -> None:
        raise CloseConnection(reason)

    def _noted(self, response: Any) -> Any:
        recorded = self._recorded
        if recorded is not None:
            decoded = self._decoded(response)
            codes = error_codes(decoded) if isinstance(decoded, Message) else []
            known = set(ErrorCode)
            recorded.errors = tuple(ErrorCode(code) if code in known else code for code in codes)
            recorded.took_ms = self._dispatcher.now_ms() - recorded.arrival_ms
        return response


def _pass_on(done: Any, promise: Promise) -> None:
    error = done.exception()
    if error is not None:
        promise.set_exception(error)
    else:
        promise.set_result(done.result())


def _at_once(request: FetchRequest) -> FetchRequest:
    """Return a copy of the fetch that does not wait for records (`max_wait_ms` 0)."""
    at_once = copy.copy(request)
    at_once.max_wait_ms = 0
    return at_once
