"""The windows of rates, averages and maxima that a configuration asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.metrics.recent import SampleWindows

if TYPE_CHECKING:
    from pykbroker.config.typed_config import Config


def metric_windows(config: Config) -> SampleWindows:
    """Return the windows of `metrics.num.samples` and `metrics.sample.window.ms`."""
    return SampleWindows(config.int("metrics.num.samples"), config.int("metrics.sample.window.ms") / 1000)
