"""Where a party computes on chunks of its rows: what is asked of an engine, and a party's own Dask cluster as one.

It may import errors only, and every room with raw data may import it.
Read `chunk_engine.py` first.
"""
