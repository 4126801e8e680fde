"""Strict mode's numbers: noise for a whole person on margins and moments, and a copula from them. docs/strict.md."""
