"""The burst command: sign for one or many keys, submit all at once or closely spaced, and report what became of it.

`plan` (pure) says what is sent when, `keys` and `sign` make the transactions, `chain` asks the node for nonces and
fees, `run` sends and waits, `report` (pure) and `timeline` show the result, `cli` ties them together. It speaks to
any relay or node, so that with and without can be compared.
"""
