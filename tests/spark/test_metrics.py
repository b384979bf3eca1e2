"""The topic of metrics while no broker answers: the jobs go on, and it is said once."""

from __future__ import annotations

import pytest

from pipeline import metrics
from pipeline.metrics import Metrics


def test_that_metrics_are_not_sent_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics, "TIMEOUT_MS", 50)
    sent = Metrics({"bootstrap.servers": "127.0.0.1:1"}, "pipeline-metrics")
    for number in range(3):
        sent.send("lake", {"batch": number})
    sent.close()
    said = capsys.readouterr().err
    assert said.count("metrics are not sent to pipeline-metrics; the jobs go on: ") == 1


def test_what_waits_for_the_brokers_is_bounded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics, "WAITING", 2)
    monkeypatch.setattr(Metrics, "_send_all", lambda self: None)  # as if one record took forever
    sent = Metrics({"bootstrap.servers": "127.0.0.1:1"}, "pipeline-metrics")
    for number in range(4):
        sent.send("lake", {"batch": number})
    sent.close()
    assert capsys.readouterr().err.count("too many are waiting") == 1
