"""What tests, compat tests and benchmarks share: nodes, clients, certificates, ports.

None of the three imports another; what is left of that is in tests/test_testkit.py.
"""
