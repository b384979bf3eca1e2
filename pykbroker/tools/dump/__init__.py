"""What `pykbroker logs` says of the files of a log directory: bytes in, lines out.

`log_files` and `index_files` say of a file what Apache Kafka's DumpLogSegments says of it; `decoders` turns records of
Apache Kafka's own topics into its JSON; `verify` checks whole directories.

No part of a running node imports this. A file is anything with `pread` and `size`; nothing is ever written.
"""
