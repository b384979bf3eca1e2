"""Spark on a broker of its test process. This is the example of docs/testing.md, unchanged.

Its test and its fixture become those of this module. The session of the suite exists when the fixture asks for one, so
that it gets that one, with the connector in it.
"""

from __future__ import annotations

import pytest

from testkit.documented import PAGE, examples

(_EXAMPLE,) = [example for example in examples() if example.needs == "spark"]


@pytest.fixture(autouse=True, scope="session")
def _session_of_the_suite(suite_session: object) -> None:
    """Make the session of the suite before that of the example."""


exec(compile(_EXAMPLE.code, f"{PAGE}, line {_EXAMPLE.line}", "exec"))
