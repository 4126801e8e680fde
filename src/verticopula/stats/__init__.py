"""Statistics on what parties released: ranks, margins, the bridge, correlations, their repair, the fitted copula.

No raw data and no messages; `strict` has a folder of its own. Imported by `glm`, `protocol` and above. Start with
`correlation.py`, then `copula.py`; `refinement.py` for data missing at random.
"""
