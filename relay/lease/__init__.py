"""The Redis tier: which instance may send for a lane (`tier`), by leases with fences.

Job: order between instances. The scripts beside this file decide, atomically; `keeper` is one lane's state here, pure;
`tenure` carries out what it says; `store` and `listener` own the client library.
Must not know: transactions, the upstream, how turns are taken.
"""

from relay.lease.tier import Permit, Tier

__all__ = ["Permit", "Tier"]
