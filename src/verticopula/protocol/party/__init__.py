"""A party's side of every protocol: no other code answers with anything computed from raw data.

It imports what protocol may. Network, simulate and audits make parties of it; the coordinator, only a `SumsHandler`.
Read local_party.py first, then study_consents.py; member.py has studies over a network, row_alignment.py who is who.
"""
