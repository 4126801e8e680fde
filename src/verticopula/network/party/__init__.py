"""A party's process: it answers requests, asks stewards first, takes new federation files, removes what is old.

It may import connection and kit, neither of the other two sides; operations may import it.
Read party_process.py first. What a party computes is not here, but in protocol/party.
"""
