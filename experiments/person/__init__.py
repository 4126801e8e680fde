"""All methods at one epsilon for a whole person: what it allows each of them, and what is left of a regression."""
