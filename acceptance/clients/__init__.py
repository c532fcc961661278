"""Clients as processes of their own: wallets' libraries, and some that misbehave."""
