"""From a Fetch request to its answer: a plan, a reader for consumers or followers, and the answer.

A plan (`fetch_plan.py`) is a value: the partitions that one request asks for, and its limits. `PartitionReads`
(`partition_reads.py`) passes over them once, and reads each with a reader: `consumer_reader.py` or
`follower_reader.py`. `waiting_fetch.py` decides whether to answer or to wait, and `fetch_answer.py` builds the answer
when it is sent.
"""
