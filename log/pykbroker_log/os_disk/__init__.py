"""The operating system's disk: the one door through which log/ and raft storage reach it.

Nothing is imported here. See disk.py for `OsDisk`; what it promises is in pykbroker_log/disk.py.

Invariants:
* Nothing else in log/ or raft/ imports `os` or `mmap`, or calls `open` (tests/log/test_house.py).
* A broker maps no file to read it: touching a map behind a truncated end kills the process (SIGBUS). Workers and
  `pykbroker dump-log` do (mapped.py). What a transport is to send without a copy is a `Region`, for sendfile(2).
* A descriptor is closed when no thread uses it any more, and how many are open is bounded.
"""
