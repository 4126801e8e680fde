"""Tables of the parties: read, checked against the schema, encoded, aligned by subject; who is observed where.

It imports schema and what stands below; everything but datasets and schema may import it.
Read tables.py first.
"""
