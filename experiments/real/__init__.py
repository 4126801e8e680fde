"""Table 8's pipeline on a CSV of the user's own: blocks are removed at random, then every method runs."""
