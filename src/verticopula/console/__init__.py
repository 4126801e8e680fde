"""The web console: pages on this machine for a party's steward and for the study lead.

It may import network and lower rooms; only commands import it.
Read console_app.py first, then steward_pages.py and lead_pages.py; request_guard.py has what protects all of them.
"""
