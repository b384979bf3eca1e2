"""Each claim of `@acts` holds because of the key: with the key's effect taken away, the test that claims it fails.

`python tests/config/test_claims.py TEST SCOPE:KEY...` prints the keys without which the test passes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: The longest time of one test without one key; after it the test counts as endless.
LONGEST_SECONDS = 60
#: A node cannot be made without these, so no test can take them away: the claim is that it starts and is found.
REQUIRED = {"broker:node.id", "broker:process.roles", "broker:controller.listener.names"}


def claims_by_test() -> dict[str, set[str]]:
    from tests.config.test_acting import claims_with_paths

    found: dict[str, set[str]] = defaultdict(set)
    for scope in ("broker", "topic", "group"):
        for key, path, test in claims_with_paths(scope):
            found[f"{path.relative_to(ROOT)}::{test}"].add(f"{scope}:{key}")
    return {test: claimed - REQUIRED for test, claimed in found.items() if claimed - REQUIRED}


@pytest.mark.long(amount="every claimed key taken away once")
@pytest.mark.timeout(3600)
def test_a_test_that_claims_a_key_fails_without_it() -> None:
    """At least one of the tests that claim it fails."""
    passing: set[str] = set()
    failing: set[str] = set()
    for test, claimed in claims_by_test().items():
        without = subprocess.run(
            [sys.executable, __file__, test, *sorted(claimed)], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        survivors = {line.partition("=")[2] for line in without if line.startswith("passes without=")}
        print(test, survivors or "", flush=True)
        passing |= survivors
        failing |= claimed - survivors
    assert not passing - failing


def _main(test: str, claimed: list[str]) -> None:
    """Run a process for each key: it begins with the imports of this one, and a test that waits without end is
    killed."""
    import testkit.nodes.sim  # noqa: F401

    for claim in claimed:
        child = os.fork()
        if not child:
            os.environ["PYKBROKER_WITHOUT"] = claim
            os._exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-m", "", "--tb=no", test]))
        if _status(child) == pytest.ExitCode.OK:
            print(f"passes without={claim}", flush=True)


def _status(child: int) -> int:
    deadline = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            assert code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), code
            return code
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return pytest.ExitCode.TESTS_FAILED


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / folder) for folder in ("", "wire", "log", "raft", "worlds")]
    _main(sys.argv[1], sys.argv[2:])
