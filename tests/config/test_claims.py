"""Each claim of `@acts` holds because of the key: with the key's effect taken away, the test that claims it fails.

`python tests/config/test_claims.py TEST SCOPE:KEY...` prints the keys without which the test passes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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
def test_a2_a_test_that_claims_a_key_fails_without_it() -> None:
    """At least one of those that claim it."""
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
    for claim in claimed:
        os.environ["PYKBROKER_WITHOUT"] = claim
        status = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-m", "", "--tb=no", "--timeout=60", test])
        assert status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), status
        if status == pytest.ExitCode.OK:
            print(f"passes without={claim}")


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])
