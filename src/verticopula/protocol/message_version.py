"""Which messages this version speaks; a party refuses another one."""

from __future__ import annotations

MESSAGE_VERSION = 7
