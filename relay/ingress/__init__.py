"""The clients' ways in: HTTP (`http`, and `connection` for one client) and WebSocket (`websocket`)."""
