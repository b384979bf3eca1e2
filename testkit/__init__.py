"""The common parts of tests, compat tests and benchmarks: nodes, clients, certificates, ports.

None of the three imports another. The exceptions that are left are in tests/test_testkit.py.
"""
