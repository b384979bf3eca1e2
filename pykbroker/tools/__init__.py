"""Programs for people who run a cluster. The broker, its Python API and its testing kit import none of them.

`commands/` is the command line `pykbroker`, and `kafka/` has Apache Kafka's tools by their names. Both send requests to
a cluster through `cluster/`. `balance/` plans moves, `bench/` makes a load, `dump/` reads the files of a log,
`manifests/` writes files that start a node elsewhere, and `container/` reads the environment of the image.
"""
