"""The tools of share consumers end in time at a broker that keeps its connections and answers nothing.

The time limit of requests is ten minutes here, so a tool that waits for an answer fails its test by the test's own
limit.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pykbroker.__main__ import main as pykbroker
from pykbroker.testing import Broker
from pykbroker.tools.kafka.__main__ import main

PROPERTIES = "client.id=frozen\nrequest.timeout.ms=600000\ndefault.api.timeout.ms=600000\n"
TIMEOUT = "org.apache.kafka.common.errors.TimeoutException"


@pytest.fixture
def patient(tmp_path: Path) -> str:
    """A file of properties with which a client waits for ten minutes."""
    file = tmp_path / "client.properties"
    file.write_text(PROPERTIES)
    return str(file)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("t", partitions=1)
        broker.produce("t", b"one", partition=0)
        reset = ["--add-config", "share.auto.offset.reset=earliest", "--alter", "--entity-type", "groups"]
        for group in ("console", "verifiable", "consume", "perf", "kept"):
            at = ["--bootstrap-server", broker.bootstrap_servers]
            assert main(["configs", *at, *reset, "--entity-name", group]) == 0
        yield broker


@contextmanager
def frozen_at(broker: Broker, api: str, *, interrupts: bool) -> Iterator[None]:
    """The broker answers no request of the tool from the first request of this API on. `interrupts`: send SIGINT when
    the tool waits."""
    asked = broker.faults.add(client_id="frozen", api=api, drop=True)

    def freeze() -> None:
        asked.wait_for()
        broker.faults.add(client_id="frozen", drop=True)
        if interrupts:
            os.kill(os.getpid(), signal.SIGINT)

    # A program that was started in the background of a shell ignores SIGINT, and so do its tools.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=freeze)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)
        broker.faults.clear()


def test_the_time_limit_of_a_tool_holds_before_the_first_answer(
    patient: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        at = ["--bootstrap-server", f"127.0.0.1:{listening.getsockname()[1]}", "--topic", "t"]
        words = [*at, "--command-config", patient]
        assert main(["console-share-consumer", *words, "--timeout-ms", "1"]) == 0
        assert TIMEOUT in capsys.readouterr().err
        assert main(["share-consumer-perf-test", *words, "--num-records", "1", "--timeout", "1"]) == 0
    assert "WARNING: Exiting before consuming the expected number of records" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("api", ["ShareGroupHeartbeat", "ShareFetch", "ShareAcknowledge"])
def test_the_time_limit_of_the_console_holds_at_any_request(
    broker: Broker, patient: str, api: str, capfd: pytest.CaptureFixture[str]
) -> None:
    at = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "t", "--group", "kept", "--release"]
    with frozen_at(broker, api, interrupts=False):
        assert main(["console-share-consumer", *at, "--command-config", patient, "--timeout-ms", "2000"]) == 0
    assert TIMEOUT in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("api", ["ShareGroupHeartbeat", "ShareFetch", "ShareAcknowledge"])
@pytest.mark.parametrize("tool", ["console", "verifiable"])
def test_the_first_interrupt_ends_a_tool(
    broker: Broker, patient: str, tool: str, api: str, capfd: pytest.CaptureFixture[str]
) -> None:
    capfd.readouterr()
    group = ["--group" if tool == "console" else "--group-id", tool]
    at = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "t", *group]
    with frozen_at(broker, api, interrupts=True):
        assert main([f"{tool}-share-consumer", *at, "--command-config", patient]) == 128 + signal.SIGINT
    out, err = capfd.readouterr()
    if tool == "console":
        assert err == f"Processed a total of {len(out.split())} messages\n"
    else:
        assert out.splitlines()[-1].endswith('"name":"shutdown_complete"}')


@pytest.mark.slow
@pytest.mark.parametrize("api", ["ShareGroupHeartbeat", "ShareFetch", "ShareAcknowledge"])
def test_the_first_interrupt_ends_a_command(broker: Broker, api: str, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["consume", "t", "--share", "consume", "-b", broker.bootstrap_servers]
    limits = ["-X", "client.id=frozen", "-X", "request.timeout.ms=600000"]
    with frozen_at(broker, api, interrupts=True):
        assert pykbroker([*words, *limits]) == 128 + signal.SIGINT
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.slow
def test_the_first_interrupt_ends_the_performance_tool_with_its_rows(
    broker: Broker, patient: str, capfd: pytest.CaptureFixture[str]
) -> None:
    at = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "t", "--group", "perf", "--num-records", "9"]
    words = ["--command-config", patient, "--timeout", "600000", "--show-consumer-stats"]
    capfd.readouterr()
    # The only record is read, but its acknowledgement is not answered.
    with frozen_at(broker, "ShareAcknowledge", interrupts=True):
        assert main(["share-consumer-perf-test", *at, *words]) == 128 + signal.SIGINT
    out, err = capfd.readouterr()
    assert err == ""
    header, member, whole = out.splitlines()
    assert header.startswith("start.time, ")
    assert member.startswith("Share consumer 1 having client id frozen consumption metrics- ")
    assert whole.split(", ")[5] == "1"
