"""What lives as long as a `with` block, or an `async with` block that leaves the host's loop free meanwhile."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class WithBlock(ABC):
    """Starts with the block and ends with it. `_failure`: of a node that gave up by itself."""

    _failure: BaseException | None = None

    @abstractmethod
    def start(self) -> Self:
        """Start and wait until it is ready."""

    @abstractmethod
    def _end_block(self) -> None:
        """Stop; noted in `_failure` is what had stopped before."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_block()
        self._raise_failure(kind)

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._end_block)
        self._raise_failure(kind)

    def _raise_failure(self, kind: type[BaseException] | None) -> None:
        """A node that gave up while the block ran is the block's failure, unless it has one of its own."""
        failure, self._failure = self._failure, None
        if failure is not None and kind is None:
            raise RuntimeError(f"a node stopped by itself: {failure}") from failure
