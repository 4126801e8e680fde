"""Which attacks a study calls for, on which releases, and the two data sets of each.

It may import bounds; sums and the whole audit may import it.
Read attack_plan.py first.
"""
