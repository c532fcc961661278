"""The WebSocket way in: `server` (hand-off, handshake), `session` (a client), `upstream` or `over_http` (its calls)."""

from relay.ingress.websocket.server import WebSocketServer

__all__ = ["WebSocketServer"]
