"""The web console: pages on this machine for a party's steward and for the study lead.

It may import network and lower rooms; only commands import it.
Read page_interface.py first, then steward_pages.py, lead_pages.py and console_app.py; request_guard.py protects all.
"""
