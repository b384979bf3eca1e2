"""Writes the dead letters of share groups (KIP-1191), as share-partition leaders ask for them.

`letter_writer.py` is the part that a broker has. `writer_machine.py` decides which letters go to which broker and when,
and is pure. Its parts are `ready_orders.py` (which orders share a request), `copy_reads.py` (which orders may read, and
the memory of copies), `awaited_topics.py` (which orders wait for a topic), `down_places.py` (where others have failed)
and `sent_requests.py` (which letters have another leader by now). `letter_topics.py` has the rules for the topic,
`letter_batches.py` makes record batches, and `source_records.py` takes keys and values out of the source log, which
`source_reader.py` reads.
"""
