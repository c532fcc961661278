"""What the relay costs, measured beside what it competes with, in one run.

`turns` runs the contenders in turn and drops what others disturbed, `load` is wrk, `node` and `bulk_node` the other
end, `proxies` the contenders, `costs` a table of them. The groups: `passing`, `heads`, `https`, `large`, `idle` for the
HTTP path, `submissions`, `batch`, `senders` for lanes (`bursts`, `probe`), `redis`, `order`, `workers` (`restarts`) for
several processes, `soak` (`soak_node`, `crowds`) for what grows, `profile` for where the time goes. `sheet` writes what
they found.
"""
