"""What a study is about: federations, columns and units; the methods there are; a study's settings.

It imports errors, formatting and notebook boxes only; everybody may import it.
Read columns.py first, then federation.py and methods.py.
"""
