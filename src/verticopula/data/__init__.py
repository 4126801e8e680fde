"""Tables of the parties: read, checked against the schema, encoded, aligned by subject; who is observed where.

It may import engine and lower rooms; privacy and all higher rooms may import it.
Read tables.py first.
"""
