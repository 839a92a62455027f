"""Serve: one warm engine behind HTTP, WebSocket and Wyoming."""
