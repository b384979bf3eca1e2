"""A resource that lives as long as a `with` block, or an `async with` block, which does not block the host's loop."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class WithBlock(ABC):
    """Starts with the block and ends with it. `_failure`: the exception of a node that stopped by itself."""

    _failure: BaseException | None = None

    @abstractmethod
    def start(self) -> Self:
        """Start and wait until it is ready."""

    @abstractmethod
    def _end_block(self) -> None:
        """Stop; `_failure` gets the exception of a node that had stopped before."""

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
        """Raise the failure of a node that stopped while the block ran, unless the block itself has failed."""
        failure, self._failure = self._failure, None
        if failure is not None and kind is None:
            raise RuntimeError(f"a node stopped by itself: {failure}") from failure
