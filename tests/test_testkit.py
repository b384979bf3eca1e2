"""tests/, compat_tests/ and bench/ share testkit/: it imports none of them, and none imports another."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

from tests.parsed import parsed

ROOT: Final = Path(__file__).parents[1]
#: (importing folder, imported module) that are left. No new one comes, and each that goes leaves this list.
LEFT: Final = {
    ("bench", "compat_tests.exactly_once.workers"),
    ("bench", "compat_tests.oracle.kafka"),
    ("compat_tests", "bench.raw"),
    ("compat_tests", "bench.writers"),
    ("compat_tests", "tests.log.test_power_loss"),
    ("compat_tests", "tests.node.disks.test_real_disks"),
    ("compat_tests", "tests.pages.console"),
    ("compat_tests", "tests.whole_run.timings"),
    ("compat_tests", "tests.wire.test_fuzz"),
    ("tests", "bench.clusters"),
    ("tests", "bench.measurements"),
    ("tests", "bench.replication"),
    ("tests", "bench.report"),
    ("tests", "bench.run"),
    ("tests", "bench.servers"),
    ("tests", "bench.sides"),
    ("tests", "bench.writers"),
    ("tests", "compat_tests.acls.acl_cases"),
    ("tests", "compat_tests.acls.acl_requests"),
    ("tests", "compat_tests.differential.compare"),
    ("tests", "compat_tests.differential.link"),
    ("tests", "compat_tests.differential.masks"),
    ("tests", "compat_tests.differential.nodes"),
    ("tests", "compat_tests.differential.plain"),
    ("tests", "compat_tests.differential.session"),
    ("tests", "compat_tests.differential.stored"),
    ("tests", "compat_tests.oracle.kafka"),
    ("tests", "compat_tests.workers"),
}


def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            whole = ((ROOT / node.module.replace(".", "/") / f"{alias.name}.py").is_file() for alias in node.names)
            found.update(
                f"{node.module}.{alias.name}" if is_module else node.module
                for alias, is_module in zip(node.names, whole, strict=True)
            )
    return found


@pytest.mark.slow
def test_they_share_the_testkit_alone() -> None:
    folders = {"testkit", "tests", "compat_tests", "bench"}
    across = {
        (folder, module)
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        for module in imported(path)
        if module.partition(".")[0] in folders - {folder, "testkit"}
    }
    assert across == LEFT
