"""relay: a JSON-RPC relay that keeps every sender's transactions in order."""

__version__ = "0.1.0"
