"""Every row label of the paper's tables, one file each: `fit(study) -> Outcome`."""
