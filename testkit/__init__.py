"""The common parts of tests, compat tests and benchmarks: nodes, clients, certificates, ports, Apache Kafka itself.

None of the three imports another. tests/test_testkit.py has the two exceptions, with their reasons.
"""
