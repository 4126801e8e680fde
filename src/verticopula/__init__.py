"""Private synthetic data from vertically split tables with missing blocks."""
