"""Messages, their bytes, and one generator of rounds per method; no input or output happens here.

It imports glm and what stands below; transports and all above may import it.
Read shared_rounds.py first, then rank_methods.py; registry.py binds names to rounds.
"""
