"""actionlint finds nothing in the workflows of a public host."""

from __future__ import annotations

import subprocess

import pytest

from testkit import needs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"


def test_actionlint_finds_nothing(against: str) -> None:
    if against == "apache-kafka":
        pytest.skip("the workflows are pykbroker's")
    go = needs.go((1, 24))
    files = sorted((needs.ROOT / ".github/workflows").glob("*.yml"))
    assert files
    done = subprocess.run(
        [go, "run", ACTIONLINT, "-no-color", *map(str, files)],
        cwd=needs.ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
