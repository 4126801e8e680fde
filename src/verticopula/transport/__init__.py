"""How rounds reach the parties: the seam is one method, and the simplest way is a function call.

It may import protocol and lower rooms; everything above may import it.
Read delivery.py: it is short.
"""
