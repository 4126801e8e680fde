"""The paper's Algorithms 1 to 3 as they are printed: obvious versions, for comparison.

verticopula's variants of the same methods are in the files of the folder above. They import nothing from here.
Protocols and saved studies import it. Read rounds_at_client.py first, then printed_fit.py for the server.
"""
