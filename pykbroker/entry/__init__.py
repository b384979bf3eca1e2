"""The commands of a broker without its tools: start, format, health and version.

They need only the standard library and the packages of a node. `pykbroker/__main__.py` is the program that chooses
between them and `pykbroker.tools`, which needs the packages of the extra `tools`.
"""
