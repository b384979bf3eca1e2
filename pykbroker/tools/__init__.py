"""Programs for people who run a cluster. The broker, its Python API and its testing kit import none of them.

`commands/` is the command line `pykbroker`, and `kafka/` has Apache Kafka's tools by their names. Both ask a cluster
through `cluster/`. `balance/` plans moves, `bench/` makes a load, `dump/` reads the files of a log, `manifests/` writes
what starts a node elsewhere, `container/` reads the environment of the image, and `local_cluster/` runs several nodes.
"""
