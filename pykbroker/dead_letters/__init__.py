"""Writes the dead letters of share groups (KIP-1191), as share-partition leaders ask for them.

`letter_writer.py` is the part that a broker has. `writer_machine.py` decides which letters go to which broker and when,
and is pure. These are its parts:

* `ready_orders.py`: the orders that share a request
* `copy_reads.py`: the orders that may read, and the memory of copies
* `awaited_topics.py`: the orders that wait for a topic
* `down_places.py`: the places where other orders have failed
* `sent_requests.py`: the letters under way whose partition has another leader by now

`letter_topics.py` has the rules for the topic, `letter_batches.py` makes record batches, and `source_records.py` takes
keys and values out of the source log, which `source_reader.py` reads.
"""
