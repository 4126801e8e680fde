"""Lower bounds on epsilon for any release: trials on two data sets, guesses, and what they prove about a claim.

It imports no other room of auditing; all of them may import it.
Read mechanism_audit.py first.
"""
