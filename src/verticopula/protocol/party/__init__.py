"""A party's side of every protocol: the only code that sees raw data.

It imports what protocol may; network, simulate and audits make parties of it. The coordinator's side makes one thing of
it: a `SumsHandler` without cells, where the coordinator is the third compute party.
Read local_party.py first, then study_consents.py; member.py adds opening and closing over a network.
"""
