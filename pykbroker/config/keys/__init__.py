"""The rows of the table, one module per area. table.py is the index; import that."""
