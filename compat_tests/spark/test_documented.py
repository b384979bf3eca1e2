"""Spark on a broker of its test process: the example of docs/testing.md, as it stands there.

Its test and its fixture become those of this module. The fixture asks for a session when there is that of the suite, so
that it gets that one, with the connector in it.
"""

from __future__ import annotations

import pytest

from tests.testing.documented import PAGE, examples

(_EXAMPLE,) = [example for example in examples() if example.needs == "spark"]


@pytest.fixture(autouse=True, scope="session")
def _session_of_the_suite(suite_session: object) -> None:
    """Before the example's own."""


exec(compile(_EXAMPLE.code, f"{PAGE}, line {_EXAMPLE.line}", "exec"))
