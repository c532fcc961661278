"""The operator's commands: ``relay tx``, ``relay lane``, ``relay sweep``.

They talk to the operator's API (`relay.console`) of a relay that runs: `commands` says what there is, `client` asks,
`tables` shows it to a person.
"""
