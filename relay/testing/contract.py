"""The whole suite in one class."""

from __future__ import annotations

from relay.testing.keeping import Keeping
from relay.testing.keys import Keys
from relay.testing.looking import Looking
from relay.testing.way import Way
from relay.testing.writers import Writers


class JournalContract(Way, Writers, Keys, Looking, Keeping):
    """Subclass it as ``Test…`` and override the fixture ``stores``."""
