"""The reason why a query ended, in words for a person. There is no JVM; these are the texts that Spark's exceptions
have."""

from __future__ import annotations

import pytest

from compat_tests.spark.pipeline.raw import configured
from pipeline.explain import explain, shortened


def java(text: str) -> Exception:
    return Exception(f"[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: {text}")


@pytest.mark.parametrize(
    ("text", "message", "advice"),
    [
        ("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.", "another driver", "Stop one"),
        (
            "org.apache.kafka.common.errors.RecordTooLargeException: 5 bytes",
            "larger than the topic",
            "max.message.bytes",
        ),
        (
            "org.apache.kafka.common.errors.TimeoutException: Topic x not present in metadata after 60000 ms.",
            "Topic x not present in metadata",
            "Create it",
        ),
        (
            "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.TimeoutException: Timed out",
            "localhost:1 did not answer in time: Timed out",
            "when they are back",
        ),
        (
            "Reason: Traceback (most recent call last):\npipeline.lake.positions.LakeTakenError: another driver has "
            "it\nRun one driver\n SQLSTATE: 39000 SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: lake",
            "another driver has it",
            "Run one driver",
        ),
        (
            'Traceback (most recent call last):\n  File "x.py", line 1, in y\npipeline.lake.positions.LakeError: it is '
            "another's\nGive the old checkpoint\n\n\tat py4j.Protocol.getReturnValue(Protocol.java:476)",
            "it is another's",
            "Give the old checkpoint",
        ),
    ],
)
def test_known_causes_are_told_without_javas_words(text: str, message: str, advice: str) -> None:
    told = explain(java(text), configured())
    assert told is not None
    assert message in told.message
    assert advice in told.advice
    assert "STREAM_FAILED" not in str(told)
    assert "SQLSTATE" not in str(told)
    assert "\tat " not in str(told)


def test_a_java_error_is_short_enough_for_sparks_own_expression() -> None:
    text = "An error while calling o1.save.\n: a.B: why\n\tat a.B.c(B.java:1)\nCaused by: d.E: because\n\t... 3 more"
    assert shortened(text) == "An error while calling o1.save.\n: a.B: why\nCaused by: d.E: because"
    long = shortened("first" + "x" * 100_000 + "last")
    assert (long[:5], long[-4:], len(long)) == ("first", "last", 1505)


def test_what_is_not_known_is_left_as_spark_says_it() -> None:
    assert explain(java("java.lang.IllegalStateException: what"), configured()) is None
