"""The client inside a broker that keeps the state of share partitions with their share coordinators (KIP-932).

Share-partition leaders and the group coordinator are its callers, in Apache Kafka as here. `persister.py` is the part
that they call. `persister_machine.py` decides what is sent to which node and when, and is pure; `state_operations.py`
has its inputs and outputs. `state_requests.py` makes messages of them. The name is Apache Kafka's.

A coordinator on the same node is asked through the listener between brokers too. Leaders, persisters and coordinators
meet only by messages, so that each of them may be Apache Kafka's.
"""
