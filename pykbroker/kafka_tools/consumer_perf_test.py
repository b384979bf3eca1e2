"""kafka-consumer-perf-test: reads a topic from its beginning, by the load of `pykbroker bench consume`.

Its table is Apache Kafka's. The consumer reads all partitions without a group, so no rebalance is in the times.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from pykbroker.kafka_tools.producer_perf_test import MEBIBYTE, ended
from pykbroker.kafka_tools.reach import BAD_START, BOOTSTRAP, COMMAND_CONFIG, begun, reached, said_of
from pykbroker.kafka_tools.tool_options import Accepted, OptionError, Options, key_values

if TYPE_CHECKING:
    from pykbroker.load.load_plan import LoadTold

_HEADER: Final = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
_NO_EFFECT: Final = "Has no effect."

OPTIONS = Options(
    "This tool is used to verify the consumer performance.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Accepted("command-property", "A property of the consumer.", "key=value"),
        Accepted("consumer.config", "Another name of --command-config.", "file"),
        Accepted("date-format", "", "format", not_served="dates are yyyy-MM-dd HH:mm:ss:SSS"),
        Accepted("fetch-size", "The most bytes of a partition in one answer.", "bytes", int, "1048576"),
        Accepted("from-latest", "", not_served="a topic is read from its beginning"),
        Accepted("group", f"{_NO_EFFECT} There is no group.", "group"),
        Accepted("hide-header", "Leave the header out."),
        Accepted("include", "", "pattern", not_served="one --topic is read"),
        Accepted("messages", "Another name of --num-records.", "count", int),
        Accepted("num-records", "How many records are read.", "count", int),
        Accepted("print-metrics", _NO_EFFECT),
        Accepted("reporting-interval", _NO_EFFECT, "ms", int),
        Accepted("show-detailed-stats", "", not_served="only the sum is printed"),
        Accepted("socket-buffer-size", _NO_EFFECT, "bytes", int),
        Accepted("timeout", "End when nothing comes for so many milliseconds.", "ms", int, "10000"),
        Accepted("topic", "The topic.", "topic"),
    ],
)


def run(words: Sequence[str]) -> int:
    given = begun(OPTIONS, words, "bootstrap-server")
    OPTIONS.require(given, "topic")
    wanted_by = OPTIONS.both(given, "num-records", "messages")
    OPTIONS.require(given, wanted_by)
    from pykbroker.admin import topics
    from pykbroker.admin.client_properties import read_properties
    from pykbroker.admin.failure import AskFailed
    from pykbroker.load.load_plan import LoadPlan
    from pykbroker.load.load_run import LoadRun

    bootstrap, topic = given.text("bootstrap-server") or "", given.text("topic") or ""
    try:
        wanted = given.integer(wanted_by)
        file = given.text("command-config") or given.text("consumer.config")
        properties = read_properties(file) if file else {}
        properties.update(key_values(given.texts("command-property")))
        properties.setdefault("max.partition.fetch.bytes", str(given.integer("fetch-size")))
        with reached(bootstrap, file) as cluster:
            (described,) = topics.described(cluster, [topic])
        plan = LoadPlan("consume", topic, bootstrap, properties, wanted, patience_ms=given.integer("timeout"),
                        partitions=[row.number for row in described.partitions])  # fmt: skip
        with LoadRun([plan]) as load:
            load.begin()
            began = time.time()
            (told,) = load.told(lambda done: None)
    except OptionError as error:
        OPTIONS.end_with_usage(str(error))
    except (*BAD_START, AskFailed) as error:
        print(said_of(error), file=sys.stderr)
        return 1
    if told.records < wanted:
        print(
            "WARNING: Exiting before consuming the expected number of records: timeout "
            f"({given.integer('timeout')} ms) exceeded. You can use the --timeout option to increase the timeout."
        )
    if not given.has("hide-header"):
        print(_HEADER)
    print(row_of(told, began))
    return ended(told, "consume", wanted)


def row_of(told: LoadTold, began: float) -> str:
    """Apache Kafka's row. `began`: seconds since the epoch."""
    seconds = (told.ended_ns - told.begun_ns) / 1e9
    megabytes = told.bytes / MEBIBYTE
    rates = [f"{amount / seconds if seconds else 0:.4f}" for amount in (megabytes, told.records)]
    times = [_date(began), _date(began + seconds)]
    cells = [*times, f"{megabytes:.4f}", rates[0], str(told.records), rates[1], "0", f"{seconds * 1000:.0f}", *rates]
    return ", ".join(cells)


def _date(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds)
    return f"{moment:%Y-%m-%d %H:%M:%S}:{moment.microsecond // 1000:03d}"
