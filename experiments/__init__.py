"""The paper's designs, baselines and tables: beside the library, not installed with it."""
