"""Waits for the two halves of a ShareFetch, its acknowledgements and its fetch, and makes the answer from both.

Both were begun in the same turn of the loop, so the fetch can get records that the acknowledgements have released. As
in Apache Kafka, neither is answered without the other. A request that closes its session ends it after its
acknowledgements.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from pykbroker.fetches.share_acquisitions import ShareAcquisitions
from pykbroker.fetches.share_answer import share_answer
from pykbroker.net.promise import Promise

if TYPE_CHECKING:
    from pykbroker.dispatch.context import BrokerContext
    from pykbroker.fetches.share_acknowledgements import ShareAcknowledgements
    from pykbroker.fetches.share_fetch_plan import ShareFetchPlan
    from pykbroker.runtime.later import Later


class ShareFetchOutcome:
    """Call `take` once. `promise` then has the answer, or gets it later."""

    __slots__ = ("_acknowledgements", "_acquisitions", "_ctx", "_plan", "promise")

    def __init__(self, ctx: BrokerContext, plan: ShareFetchPlan, acknowledgements: ShareAcknowledgements) -> None:
        self._ctx = ctx
        self._plan = plan
        self._acknowledgements = acknowledgements
        self._acquisitions = ShareAcquisitions(plan)
        self.promise = Promise()

    def take(self, fetched: Later[ShareAcquisitions] | None) -> None:
        """Take what was acquired, now or later; None if the request fetches nothing."""
        if isinstance(fetched, asyncio.Future):
            # A client that has gone waits for nothing.
            self.promise.when_cancelled(partial(_cancel, fetched))
            fetched.add_done_callback(self._fetched)
        else:
            self._acquired(fetched if fetched is not None else self._acquisitions)

    def _fetched(self, done: asyncio.Future[ShareAcquisitions]) -> None:
        if done.cancelled():
            return  # the client has gone, or the node is stopping
        error = done.exception()
        if error is not None:
            self.promise.set_exception(error)
        else:
            self._acquired(done.result())

    def _acquired(self, acquisitions: ShareAcquisitions) -> None:
        self._acquisitions = acquisitions
        self._acknowledgements.when_done(self._answer)

    def _answer(self) -> None:
        plan, services = self._plan, self._ctx.services
        leaders = services.share_leaders
        lock_duration_ms = leaders.limits_of(plan.member.group).lock_duration_ms
        if plan.is_final:
            leaders.close_session(plan.session)
        elif self.promise.cancelled() or not plan.is_current(leaders.sessions):
            # The client has gone, or its session has ended. The session of a client that has gone may live on, because
            # it belongs to another connection. The answer has no records, and no error, as in Apache Kafka.
            self._acquisitions.give_back()
            self._acquisitions = ShareAcquisitions(plan)
        self._acquisitions.count(services.replicas.topic_metrics)
        self.promise.set_result(
            share_answer(
                plan,
                self._acquisitions.parts,
                self._acknowledgements.results,
                services.metadata.image,
                self._ctx.listener_name,
                lock_duration_ms,
            )
        )


def _cancel(fetched: asyncio.Future[ShareAcquisitions]) -> None:
    fetched.cancel()
