"""Prints the files of a log directory for `pykbroker logs`: bytes in, lines out.

`log_lines` and `index_files` print files as Apache Kafka's DumpLogSegments does; `decoders` turns records of Apache
Kafka's own topics into its JSON; `verify` checks whole directories.

No part of a running node imports this package. A file is any object with `pread` and `size`; nothing is ever written.
"""
