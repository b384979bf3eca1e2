"""A failure here shows the ends of the nodes' logs."""

from compat_tests.mixed_cluster.conftest import pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]
