"""A test that its time-out ends in the middle of a call of Spark does not spoil the tests after it."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.spark.session import forget_call

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def test_the_answer_of_a_call_that_a_time_out_has_ended_is_not_taken_for_the_next(
    spark: SparkSession,
) -> None:
    def give_up(number: int, frame: FrameType | None) -> None:
        pytest.fail("as pytest-timeout does")

    before = signal.signal(signal.SIGUSR1, give_up)
    jvm: Any = spark._jvm
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        timer.start()
        with pytest.raises(pytest.fail.Exception):
            jvm.java.lang.Thread.sleep(60_000)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    forget_call()
    assert spark.range(3).count() == 3
