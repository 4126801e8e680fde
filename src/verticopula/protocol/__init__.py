"""Messages, their bytes, the proposal of a study, one generator of rounds per method; no input or output happens here.

It may import glm and lower rooms; transports and higher rooms may import it.
Read shared_rounds.py first, then rank_methods.py; method_registry.py binds names to rounds.
"""
