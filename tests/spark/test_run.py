"""`make pipeline` where something is missing: a paragraph that says what, before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from example import run


def java(home: Path, version: str) -> None:
    (home / "bin").mkdir()
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2018-09-25' >&2\n")
    program.chmod(0o755)


def test_a_machine_without_a_jdk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run.main([]) == 1
    said = capsys.readouterr().err
    assert "make pipeline: there is no java here. Spark needs a JDK, 17 or newer: `apt-get install" in said


def test_a_java_home_without_java(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert run.main([]) == 1
    assert "there is no java here in JAVA_HOME" in capsys.readouterr().err


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_402"])
def test_a_jdk_that_is_too_old(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str
) -> None:
    java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert run.main([]) == 1
    assert f'is too old: openjdk version "{version}"' in capsys.readouterr().err
