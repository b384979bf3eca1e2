"""Shared by every room's tests; kept light: a fixture that only one room needs lives in that room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests import timing

if TYPE_CHECKING:
    import pytest


def pytest_configure(config: pytest.Config) -> None:
    timing.register(config)
