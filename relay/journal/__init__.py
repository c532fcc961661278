"""Every submission from its first byte to its final verdict, on disk.

`records` has the values, `store` what a store can do, `idempotency` what a repeated submission leads to, `faults` what
can be wrong. Stores: `memory` (tests), `sqlite` (one host), `postgres` (several).
"""

from relay.journal.faults import Unavailable, Unusable
from relay.journal.idempotency import Repeat, judge
from relay.journal.store import Journal

__all__ = ["Journal", "Repeat", "Unavailable", "Unusable", "judge"]
