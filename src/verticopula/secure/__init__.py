"""Sums over records that no single organisation sees: sharing, noise, sealed messages (docs/strict.md)."""
