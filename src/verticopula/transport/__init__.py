"""How rounds reach the parties: the seam is one method, and the simplest way is a function call.

It imports protocol and what stands below; everything above may import it.
Read delivery.py: it is short.
"""
