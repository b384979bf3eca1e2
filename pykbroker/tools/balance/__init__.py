"""Makes a plan of moves from the load of a cluster's partitions (docs/balance.md).

The package needs numpy (the extra `balance`). It sends no requests and reads no clock: arrays in, a plan out.
"""
