"""Several processes on one machine that keep one order (`[server] workers`).

A worker that takes clients hands each submission as a ticket over a `link` (`forwarder`) to the lane process, which
owns all lanes (`desk`). What the lane process has at the node stands in shared memory (`inflight`), so that one that
replaces it does not run ahead (`aftermath`).
"""
