"""The commands of a broker without its tools: start, format, health and version.

They stand on the standard library and on what a node needs. `pykbroker/__main__.py` is the program that chooses between
them and `pykbroker.tools`, which needs the packages of the extra `tools`.
"""
