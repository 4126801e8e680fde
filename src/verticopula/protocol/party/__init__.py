"""A party's side of every protocol: no other code answers with anything computed from raw data.

It imports what protocol may. Network, simulate and audits make parties of it; the coordinator, only a `SumsHandler`.
Read local_party.py first, then study_consents.py; member.py adds the beginning and the end of a study over a network.
"""
