"""The one exception of the burst command."""

from __future__ import annotations


class BurstFault(Exception):  # noqa: N818 - the house's word for a broken thing
    """The burst cannot be run as asked. The text says what to change."""
