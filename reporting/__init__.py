"""What benchmarks and experiments share: one runner, one saved format, one look of tables, figures and pages.

`catalogue` is the command line, `records` the saved format, `parallel` runs many tasks. Imports nothing of either.
"""
