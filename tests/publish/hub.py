"""A Hub on the loopback, with the part of the Hugging Face Hub's API that publishing takes."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Hub(ThreadingHTTPServer):
    """Repositories in memory. Keeps what is committed, and the status that it is to answer with."""

    daemon_threads = True

    def __init__(self, status: int = 200):
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = status
        self.private = True  # of the repository
        self.created: list[dict[str, Any]] = []
        self.stored: dict[str, bytes] = {}  # large files by their SHA-256
        self.files: dict[str, bytes] = {}  # as committed
        self.summaries: list[str] = []  # of commits
        self.tokens: set[str | None] = set()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None: ...

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self, values: Any, status: int = 200) -> None:
        data = json.dumps(values).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if "/tree/main" in self.path and self.server.status == 200:
            files = [
                {"type": "file", "path": name, "size": len(data), "oid": "0" * 40}
                for name, data in self.server.files.items()
            ]
            return self.answer(files)
        if self.path == "/api/models/anna/my-voice" and self.server.status == 200:
            return self.answer({"id": "anna/my-voice", "private": self.server.private})
        self.answer({"error": "not here"}, 404 if self.server.status == 200 else self.server.status)

    def do_PUT(self) -> None:
        self.server.stored[self.path.rpartition("/")[2]] = self.body()
        self.answer({})

    def do_POST(self) -> None:
        hub, data, path = self.server, self.body(), self.path.partition("?")[0]
        hub.tokens.add(self.headers.get("Authorization"))
        if hub.status != 200:
            return self.answer({"error": "refused"}, hub.status)
        where = f"{hub.address}/anna/my-voice"
        if path == "/api/repos/create":
            if hub.created:
                return self.answer(
                    {"error": "there already", "url": f"{hub.address}/anna/my-voice"}, 409
                )
            hub.created.append(json.loads(data))
            return self.answer({"url": f"{hub.address}/anna/my-voice", "name": "anna/my-voice"})
        if path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        if path.endswith("/preupload/main"):
            modes = [
                {
                    "path": f["path"],
                    "uploadMode": "lfs" if f["size"] > 10_000 else "regular",
                    "shouldIgnore": False,
                }
                for f in json.loads(data)["files"]
            ]
            return self.answer({"files": modes})
        if path.endswith("/info/lfs/objects/batch"):
            objects = [
                {**o, "actions": {"upload": {"href": f"{hub.address}/lfs/{o['oid']}"}}}
                for o in json.loads(data)["objects"]
            ]
            return self.answer({"transfer": "basic", "objects": objects})
        if path.endswith("/commit/main"):
            for line in map(json.loads, data.splitlines()):
                value = line["value"]
                if line["key"] == "header":
                    hub.summaries.append(value["summary"])
                elif line["key"] == "file":
                    hub.files[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    hub.files[value["path"]] = hub.stored[value["oid"]]
                elif line["key"] == "deletedFile":
                    del hub.files[value["path"]]
            return self.answer({"commitUrl": f"{where}/commit/1", "commitOid": "1" * 40})
        return self.answer({"error": path}, 404)
