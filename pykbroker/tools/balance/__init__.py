"""A cluster that balances itself: from the load of its partitions to a plan of moves (docs/balance.md).

Needs numpy (the extra `balance`). Nothing here asks a cluster or reads a clock: arrays in, a plan out.
"""
