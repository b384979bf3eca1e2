"""A move of a node between Apache Kafka and pykbroker: the check before it, and the plan of its steps.

Responsible for facts and for what follows from them. Each module of findings is a set of pure functions from facts to
findings; readers are modules of their own. A rule of the start is not written again here: the check calls the code of
the start with a copy of its files in memory.

Invariant: nothing is written, neither to files nor to the cluster.
"""
