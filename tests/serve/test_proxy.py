"""The manual's settings of nginx, in nginx: a page of its own address is let in, and speaks."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from .conftest import TEXT

MANUAL = Path(__file__).parents[2] / "docs/serving/operations.md"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
CONFIG = """daemon off; pid {folder}/pid; error_log stderr; worker_processes 1; {user}
events {{}}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/a; uwsgi_temp_path {folder}/b; scgi_temp_path {folder}/c;
  server {{ listen 127.0.0.1:{port};
{location}
  }}
}}
"""


@pytest.fixture(params=["/", "/tts/"])
def proxy(request, server, tmp_path):
    """The address of an nginx with the manual's settings before the server."""
    if NGINX is None:
        pytest.skip("no nginx here: apt-get install nginx")
    location = re.search(r"```nginx\n(.*?)```", MANUAL.read_text(encoding="utf-8"), re.S)[1]
    location = location.replace("127.0.0.1:8000", f"127.0.0.1:{server.port}")
    if request.param != "/":
        location = location.replace("location /", f"location {request.param}")
        location = location.replace(f":{server.port};", f":{server.port}/;")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = tmp_path / "nginx.conf"
    user = "user root;" if tmp_path.owner() == "root" else ""
    path.write_text(CONFIG.format(folder=tmp_path, user=user, port=port, location=location))
    process = subprocess.Popen([NGINX, "-c", str(path)])
    try:
        for _ in range(100):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}{request.param}"
    finally:
        process.terminate()
        process.wait(10)


def test_a_page_behind_nginx_speaks(proxy):
    origin = proxy.split("/")[2]
    body = {"model": "tts-1", "input": TEXT, "response_format": "pcm", "stream_format": "sse"}
    headers = {"origin": f"http://{origin}"}
    answer = httpx.post(proxy + "v1/audio/speech", json=body, headers=headers, timeout=30)
    assert answer.status_code == 200, answer.text
    assert answer.text.rstrip().split("\n\n")[-1].startswith('data: {"type": "speech.audio.done"')
    assert "nanospeech" in httpx.get(proxy).text
    assert httpx.get(proxy, headers={"origin": "http://evil.example"}).status_code == 403
    large = {"audio_sample": bytes(2_000_000)}  # the server's own answer, not nginx's
    assert "error" in httpx.post(proxy + "v1/audio/voices", files=large).json()
