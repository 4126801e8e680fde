"""Messages, their bytes, the proposal of a study, one generator of rounds per method; no input or output happens here.

It imports glm and what stands below; transports and all above may import it.
Read shared_rounds.py first, then rank_methods.py; method_registry.py binds names to rounds.
"""
