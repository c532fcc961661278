"""What the relay costs, measured beside what it competes with, in one run.

`turns` runs the contenders in turn and drops what others disturbed, `load` is wrk, `node` the other end, `proxies` the
contenders; `passing`, `submissions`, `redis` and `order` are the groups, `sheet` writes what they found.
"""
