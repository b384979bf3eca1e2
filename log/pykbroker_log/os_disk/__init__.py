"""The operating system's disk: log/ and raft storage reach it only through this package.

This module imports nothing. disk.py has `OsDisk`; pykbroker_log/disk.py has its contract.

Invariants:
* Nothing else in log/ or raft/ imports `os` or `mmap`, or calls `open` (tests/log/test_house.py).
* A broker maps no file to read it, because reading a map beyond a truncated end kills the process (SIGBUS). Workers and
  `pykbroker dump-log` map files (mapped.py). Bytes that a transport sends without a copy are a `Region`, for
  sendfile(2).
* A descriptor is closed when no thread uses it, and the number of open descriptors is bounded.
"""
