"""Randomness, budgets, accounting, policies and the ledger."""
