"""A copula that tables of noisy ranks tilt: what `dependence="tilted"` adds to a study by ranks.

It may import tilting and the files of stats, but not strict; protocols and higher rooms may import it.
Read rank_tilting.py first, then rank_tables.py.
"""
