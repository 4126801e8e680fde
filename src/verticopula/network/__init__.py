"""Between organisations: kits, connections, and the processes of parties, coordinator and study lead.

It may import auditing and lower rooms; commands may import it. Below operations are the three sides, which do not
import each other, then connection, then kit. Read party/party_process.py and coordinator/coordinator_process.py.
"""
