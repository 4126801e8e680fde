"""Tables of the parties: read, checked against the schema, encoded, aligned by subject; who is observed where.

It may import schema and lower rooms; everything but datasets and schema may import it.
Read tables.py first.
"""
