"""From a Fetch or a ShareFetch to its answer: a plan, a reader, and the answer.

A plan is a value: the partitions that one request reads, and its limits. `PartitionReads` (`partition_reads.py`) passes
over them once, and reads each with a reader. There is a reader for consumers, one for followers, and one for members of
share groups.

* Fetch: `fetch_plan.py`, `consumer_reader.py` or `follower_reader.py`. `waiting_fetch.py` decides whether to answer or
  to wait, and `fetch_answer.py` builds the answer when it is sent.
* ShareFetch: `share_fetch_plan.py`, `share_reader.py`. `waiting_share_fetch.py` decides whether to answer or to wait,
  and `share_acquisitions.py` acquires what was read. `share_fetch_outcome.py` joins that with the acknowledgements of
  the request (`share_acknowledgements.py`), and `share_answer.py` builds the answer.
"""
