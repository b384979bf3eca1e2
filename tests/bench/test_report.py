"""docs/benchmarks.md and the README's rows come from one stored run, whole, with the worst row among them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import report


def row(measurement: str, kafka: list[float], ours: list[float], *, more_is_better: bool = True) -> report.Row:
    ratio = ours[0] / kafka[0] if more_is_better else kafka[0] / ours[0]
    return {
        "measurement": measurement,
        "figure": "throughput",
        "unit": "req/s",
        "kafka": kafka[0],
        "pykbroker": ours[0],
        "ratio": ratio,
        "more_is_better": more_is_better,
        "kafka_all": kafka,
        "pykbroker_all": ours,
    }


def a_run(*rows: report.Row, whole: bool = True) -> report.Run:
    return {
        "when": "2026-11-22T10-00-00",
        "commit": "0123456789",
        "whole": whole,
        "kafka": "4.3.1",
        "python": "3.11.2",
        "machine": {"processor": "a processor", "cores": 2, "system": "linux"},
        "rounds": 3,
        "seconds": 4.0,
        "results": list(rows),
    }


def test_the_worst_row_stands_in_the_readme() -> None:
    chosen = report.CHOSEN[2][0]
    run = a_run(row(chosen, [100.0], [300.0]), row("slow", [100.0], [11.0]), row("not so slow", [100.0], [90.0]))
    rows = report.readme_rows(run)
    assert f"| {chosen} | throughput | 100 req/s | 300 req/s | 3.00x |" in rows
    assert "| slow | throughput | 100 req/s | 11 req/s | 0.11x |" in rows
    assert "not so slow" not in rows


def test_each_round_has_its_ratio() -> None:
    assert report.ratios_of(row("more", [100.0, 50.0], [200.0, 200.0])) == [2.0, 4.0]
    assert report.ratios_of(row("less", [100.0, 50.0], [200.0, 200.0], more_is_better=False)) == [0.5, 0.25]


def test_the_checkout_that_was_measured_beside_has_a_column() -> None:
    with_before = row("one", [100.0, 100.0, 100.0], [90.0, 90.0, 90.0]) | {"before_all": [100.0, 45.0, 90.0]}
    run = a_run(with_before, row("two", [1.0], [2.0])) | {"before": "fedcba9876"}
    page = report.page(run, "run.json")
    assert "| pykbroker is better by | rounds | than before by |" in page
    assert "| one | throughput | 100 req/s | 90 req/s | 0.90x | 0.90x to 0.90x | 1.00x |" in page
    assert "| two | throughput | 1 req/s | 2 req/s | 2.00x | one |  |" in page
    assert "before: commit fedcba9876." in page
    assert "before" not in report.page(a_run(row("two", [1.0], [2.0])), "run.json")


def test_nothing_has_no_ratio() -> None:
    run = a_run(row("memory", [1.0], [0.0]) | {"ratio": 0.0})
    assert "| memory | throughput | 1 req/s | 0 req/s |  | one |" in report.page(run, "run.json")


def test_the_newest_whole_run_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    assert report.newest_whole() is None
    for name, whole in (("2026-01-01", True), ("2026-01-02", True), ("2026-01-03", False)):
        (tmp_path / f"{name}.json").write_text(json.dumps(a_run(whole=whole)))
    assert report.newest_whole() == tmp_path / "2026-01-02.json"


def test_a_page_that_was_changed_by_hand_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run.json"
    run.write_text(json.dumps(a_run(row("one", [1.0], [2.0]))))
    for name in ("PAGE", "README"):
        monkeypatch.setattr(report, name, tmp_path / name)
    monkeypatch.setattr(report, "ROOT", tmp_path)
    report.README.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nbehind\n")
    assert report.main([str(run)]) == 0
    assert report.main(["--check", str(run)]) == 0
    report.PAGE.write_text(report.PAGE.read_text().replace("2.00x", "3.00x"))
    assert report.main(["--check", str(run)]) == 1
    assert "PAGE is not what the stored run says" in capsys.readouterr().err
