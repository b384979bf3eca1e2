"""The rows of the table, in five modules, because finding a file takes longer at import than the rows in it. Import
key_table.py."""
