"""Repeats an operation that searches a log by time, until it needs no device, no further turn and no work off the loop.

Responsible for the wait between two calls of the operation. Not responsible for what it does with the result, nor for
the budget of a turn (`pykbroker_log.time_search`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from pykbroker.runtime.cold_reads import MAX_ROUNDS, ColdReads
from pykbroker_log.disk import ColdRead
from pykbroker_log.time_search import FoundRecord, SearchKey, TimeSearch, TooMuchToSearch, TurnIsOver

if TYPE_CHECKING:
    from pykbroker.replica.batch_checks import BatchChecks

T = TypeVar("T")


class SearchTurns(Generic[T]):
    """Call `begin`, or `after` with the exception that the first call of the operation has raised."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        cold_reads: ColdReads,
        batch_checks: BatchChecks,
        search: TimeSearch,
        operation: Callable[[bool], T],
    ) -> None:
        """`operation(wait)` searches with `search`, and may raise ColdRead (unless `wait`), TurnIsOver and
        TooMuchToSearch. Then it is called again. `future` gets its result, or any other error that it raises."""
        self._loop = loop
        self._cold_reads = cold_reads
        self._batch_checks = batch_checks
        self._search = search
        self._operation = operation
        self._rounds = 0
        #: the search that has just failed off the loop
        self._failed: SearchKey | None = None
        self.future: asyncio.Future[T] = loop.create_future()

    def after(self, rest: ColdRead | TurnIsOver | TooMuchToSearch) -> None:
        """Continue when the cause of the wait is over."""
        if isinstance(rest, ColdRead):
            self._cold_reads.load(rest.source, rest.offset, rest.length).add_done_callback(self._loaded)
        elif isinstance(rest, TooMuchToSearch):
            searching = self._batch_checks.search(rest.read)
            searching.add_done_callback(partial(self._found, rest.key))
            # The search stops if the client has left.
            self.future.add_done_callback(lambda _: searching.cancel())
        else:
            self._loop.call_soon(self.begin)

    def begin(self) -> None:
        """Call the operation in this turn."""
        if self.future.done():
            return
        self._search.begin_turn()
        try:
            self.future.set_result(self._operation(self._rounds >= MAX_ROUNDS))
        except (ColdRead, TurnIsOver, TooMuchToSearch) as rest:
            self.after(rest)
        except Exception as error:  # noqa: BLE001  # the waiting caller gets it
            self.future.set_exception(error)

    def _loaded(self, loaded: asyncio.Future[None]) -> None:
        if loaded.cancelled():
            self.future.cancel()  # the node is stopping
            return
        # If the thread could not read, the log cannot read either, and raises the right error.
        self._rounds = MAX_ROUNDS if loaded.exception() is not None else self._rounds + 1
        self.begin()

    def _found(self, key: SearchKey, found: asyncio.Future[FoundRecord | None]) -> None:
        if found.cancelled():
            self.future.cancel()
            return
        error = found.exception()
        if error is None:
            self._search.found[key] = found.result()
        elif key != self._failed:
            # The batch may have been deleted since, so search again. If it is still there, the search fails again.
            self._failed = key
        elif not self.future.done():
            self.future.set_exception(error)
        self.begin()
