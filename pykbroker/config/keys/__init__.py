"""The rows of the table. They are in only five modules, because at import the search for a file takes longer than its
rows. Other modules import key_table.py."""
