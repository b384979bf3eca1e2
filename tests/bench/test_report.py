"""docs/benchmarks.md and the README's rows come from stored runs, each part from a whole one, with its worst row."""

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


ONE, THREE = report.ONE_NODE, report.THREE_NODES


def a_run(*rows: report.Row, whole: bool | list[str] = True) -> report.Run:
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
    chosen = report.CHOSEN[ONE][2][0]
    run = a_run(row(chosen, [100.0], [300.0]), row("slow", [100.0], [11.0]), row("not so slow", [100.0], [90.0]))
    rows = report.readme_rows({ONE: (run, "run.json")})
    assert f"| {chosen} | throughput | more | 100 req/s | 300 req/s | 3 |" in rows
    assert "| slow | throughput | more | 100 req/s | 11 req/s | **0.11, a loss** |" in rows
    assert "not so slow" not in rows


def test_the_readme_divides_our_figure_by_apache_kafkas() -> None:
    better = row("start", [2.0], [0.5], more_is_better=False)
    assert report.readme_row(better) == "| start | throughput | less | 2 req/s | 0.5 req/s | 0.25 |"
    worse = row("start", [2.0], [3.0], more_is_better=False)
    assert report.readme_row(worse).endswith("| **1.5, a loss** |")


def test_each_round_has_its_ratio() -> None:
    assert report.ratios_of(row("more", [100.0, 50.0], [200.0, 200.0])) == [2.0, 4.0]
    assert report.ratios_of(row("less", [100.0, 50.0], [200.0, 200.0], more_is_better=False)) == [0.5, 0.25]


def test_the_checkout_that_was_measured_beside_has_a_column() -> None:
    with_before = row("one", [100.0, 100.0, 100.0], [90.0, 90.0, 90.0]) | {"before_all": [100.0, 45.0, 90.0]}
    run = a_run(with_before, row("two", [1.0], [2.0])) | {"before": "fedcba9876"}
    page = report.page({ONE: (run, "run.json")})
    assert "| pykbroker is better by | rounds | than before by |" in page
    assert "| one | throughput | 100 req/s | 90 req/s | 0.90x | 0.90x to 0.90x | 1.00x |" in page
    assert "| two | throughput | 1 req/s | 2 req/s | 2.00x | one |  |" in page
    assert "before: commit fedcba9876." in page
    assert "before" not in report.page({ONE: (a_run(row("two", [1.0], [2.0])), "run.json")})


def test_nothing_has_no_ratio() -> None:
    run = a_run(row("memory", [1.0], [0.0]) | {"ratio": 0.0})
    assert "| memory | throughput | 1 req/s | 0 req/s |  | one |" in report.page({ONE: (run, "run.json")})


def test_each_part_comes_from_the_newest_run_that_has_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    assert report.newest_whole(ONE) is None
    stored: list[tuple[str, bool | list[str]]] = [
        ("2026-01-01", [ONE, THREE]),
        # As it was stored before there were clusters.
        ("2026-01-02", True),
        ("2026-01-03", False),
        ("2026-01-04", [THREE]),
        ("2026-01-05", []),
    ]
    for name, whole in stored:
        (tmp_path / f"{name}.json").write_text(json.dumps(a_run(whole=whole)))
    assert report.newest_whole(ONE) == tmp_path / "2026-01-02.json"
    assert report.newest_whole(THREE) == tmp_path / "2026-01-04.json"


def test_a_run_of_both_parts_gives_each_its_rows() -> None:
    cluster = report.CHOSEN[THREE][0][0]
    run = a_run(row("alone", [1.0], [2.0]), row(cluster, [1.0], [3.0]), row("three nodes, more", [1.0], [0.5]))
    page = report.page({ONE: (run, "run.json"), THREE: (run, "run.json")})
    one, three = page.split("## Three nodes")
    assert "| alone |" in one
    assert cluster not in one
    assert "| alone |" not in three
    assert f"| {cluster} | throughput | 1 req/s | 3 req/s | 3.00x | one |" in three
    assert "six nodes and a client" in three
    readme = report.readme_rows({ONE: (run, "run.json"), THREE: (run, "run.json")})
    assert f"| {cluster} | throughput | more | 1 req/s | 3 req/s | 3 |" in readme
    assert "| three nodes, more | throughput | more | 1 req/s | 0.5 req/s | **0.5, a loss** |" in readme


def test_a_limit_of_nothing_is_a_limit() -> None:
    lost = row("kills", [0.0], [1.0], more_is_better=False) | {"ratio": 0.0, "target": 0, "at_most": 0}
    assert "MISSED (at most 0 req/s)" in report.format_row(lost)
    assert "ok (at most 0 req/s)" in report.format_row(lost | {"pykbroker": 0.0})
    assert "at most" not in report.format_row(lost | {"at_most": None})


def test_a_part_with_sides_of_its_own_is_not_said_to_be_beside_apache_kafka() -> None:
    own = row("segments, 1 KB", [9.0], [3.0], more_is_better=False) | {"target": 4, "at_most": None}
    own |= {"sides": ["there", "here"], "there": 9.0, "here": 3.0, "there_all": [9.0], "here_all": [3.0]}
    run = a_run({name: value for name, value in own.items() if "kafka" not in name and "pykbroker" not in name})
    part = report.page({report.SEGMENTS: (run, "run.json")}).partition("## Segments")[2].partition("## ")[0]
    assert "| load | figure | there | here | here is better by | rounds | goal |" in part
    assert "| segments, 1 KB | throughput | 9 req/s | 3 req/s | 3.00x | one | at least 4x: missed |" in part
    assert "Python 3.11.2.\n" in part
    assert "Apache Kafka" not in part


def test_a_page_that_was_changed_by_hand_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run.json"
    run.write_text(json.dumps(a_run(row("one", [1.0], [2.0]))))
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    for name in ("PAGE", "README"):
        monkeypatch.setattr(report, name, tmp_path / name)
    monkeypatch.setattr(report, "ROOT", tmp_path)
    report.README.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nbehind\n")
    assert report.main([str(run)]) == 0
    assert report.main(["--check", str(run)]) == 0
    report.PAGE.write_text(report.PAGE.read_text().replace("2.00x", "3.00x"))
    assert report.main(["--check", str(run)]) == 1
    assert "PAGE is not what the stored run says" in capsys.readouterr().err


def test_a_run_that_is_not_whole_makes_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run.json"
    run.write_text(json.dumps(a_run(row("one", [1.0], [2.0]), whole=[])))
    monkeypatch.setattr(report, "PAGE", tmp_path / "PAGE")
    assert report.main([str(run)]) == 1
    assert "is no whole run" in capsys.readouterr().err
    assert not report.PAGE.exists()


def test_the_note_of_a_run_follows_its_conditions() -> None:
    run = a_run(row("one", [1.0], [2.0]))
    assert report.conditions({**run, "note": "Other load."}, run["results"]) == (
        f"{report.conditions(run, run['results'])} Other load."
    )
    own = [{"sides": ["Apache Kafka's", "ours"]}]
    assert report.conditions({**run, "note": "Other load."}, own).endswith(f"Apache Kafka {run['kafka']}. Other load.")
