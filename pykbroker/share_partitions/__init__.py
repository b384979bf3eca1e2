"""The leader's state of share groups, as pure machines (KIP-932).

`share_partition.py` is the entrance: it knows which record is available, locked or done for one group. Its parts are
the acquisition (`acquisition.py`), acknowledgements (`acknowledged_ranges.py`), changes in turns (`state_changes.py`),
and the window of offsets in flight (`in_flight.py`) over the arrays of `offset_runs.py`. The time comes in as a number
of milliseconds.

`share_sessions.py` knows the sessions of members on this broker, and which locks the end of a session releases.
"""
