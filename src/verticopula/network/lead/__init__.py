"""The study lead's side: a study as it is asked for and signed, requests to the coordinator, files that come back.

It may import connection and kit, neither of the other two sides; operations may import it.
Read study_lead.py first.
"""
