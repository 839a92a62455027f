"""Replicas on Ray Serve: the same bytes, and one that dies breaks off its own speech alone."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import httpx
import pytest

from nanospeech.errors import InputError
from nanospeech.serve.ray_serve import Replicas, read_replicas, start
from nanospeech.serve.settings import ServeSettings

from .conftest import TEXT, speech
from .test_life import served

LONG = TEXT * 40


def test_replicas_are_read_and_mistakes_named(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("replicas: 2\nmax_replicas: 8\ngpus: 0.5\n", encoding="utf-8")
    assert read_replicas(path) == Replicas(replicas=2, max_replicas=8, gpus=0.5)
    for text, said in [
        ("replica: 2", "has 'replica'; it takes replicas"),
        ("replicas: 0", "choose 1 or more"),
        ("replicas: two", "should be a number"),
        ("replicas: 4\nmax_replicas: 2", "max_replicas is 2"),
        ("[1", "cannot read .* it should hold lines as: replicas: 2"),
        (None, "config.yaml: No such file or directory; it should hold lines as: replicas: 2"),
    ]:
        path.unlink() if text is None else path.write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match=said):
            read_replicas(path)


def replica_pids() -> set[int]:
    psutil = pytest.importorskip("psutil")
    mine = psutil.Process().children(recursive=True)
    return {p.pid for p in mine if any("ServeReplica:nanospeech:speech" in c for c in p.cmdline())}


def until(seconds, true):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.1)


@pytest.fixture
def cluster(make_release):
    """The address of two replicas of the tiny model of conftest.py."""
    ray = pytest.importorskip("ray")
    ray_serve = pytest.importorskip("ray.serve", exc_type=ImportError)  # its own extra packages

    folder = make_release(text_upsampling="aligned", patch_size=2, aligner_dim=24)
    try:
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=100 * 2**20,
            log_to_driver=False,
        )
        settings = ServeSettings(port=8731)
        start((folder, "torch", "cpu", "float32"), settings, Replicas(replicas=2, cpus=0.5))
        yield "http://127.0.0.1:8731"
    finally:
        ray_serve.shutdown()
        ray.shutdown()


def test_two_replicas_speak_alike_and_one_that_dies_is_replaced(cluster, tiny_aligned):
    replicas = SimpleNamespace(url=cluster)
    fields = {"response_format": "pcm", "seed": 3}
    # of as many threads as a replica: another number rounds sums otherwise
    one = "--backend", "torch", "--dtype", "float32"
    process, url = served(tiny_aligned, *one, env={"OMP_NUM_THREADS": "1"})
    try:
        wanted = speech(SimpleNamespace(url=url), **fields).content
    finally:
        process.kill()
        process.wait()
    assert len(wanted) > 10_000
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: speech(replicas, **fields), range(6)))
    assert {a.content for a in answers} == {wanted}
    assert speech(replicas, voice="nobody").json()["error"]["code"] == "voice_not_found"

    before = replica_pids()
    used = {pid: cpu(pid) for pid in before}
    assert len(before) == 2
    body = {"model": "tts-1", "voice": "tone", "input": LONG, "response_format": "pcm"}
    with httpx.stream("POST", cluster + "/v1/audio/speech", json=body, timeout=60) as answer:
        parts = answer.iter_raw()
        next(parts)
        # the one that speaks is the one that has used the processor since
        busy = max(before, key=lambda pid: cpu(pid) - used[pid])
        os.kill(busy, signal.SIGKILL)
        with pytest.raises(httpx.HTTPError):
            for _ in parts:
                pass
    for _ in range(4):
        assert speech(replicas, **fields).content == wanted
    until(60, lambda: len(replica_pids()) == 2 and busy not in replica_pids())


def test_replicas_say_where_they_listen_and_end_in_order_at_sigterm(tmp_path):
    pytest.importorskip("ray")
    pytest.importorskip("ray.serve", exc_type=ImportError)
    (tmp_path / "replicas.yaml").write_text("replicas: 1\n", encoding="utf-8")
    flags = "--ray", str(tmp_path / "replicas.yaml"), "--port", "8732", "--backend", "onnx"
    argv = [sys.executable, "-m", "nanospeech", "serve", *flags]
    env = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        told = []
        for line in process.stderr:
            told.append(line)
            if line == "1 replica speaks at http://127.0.0.1:8732/\n":
                process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, told[-5:]


def cpu(pid: int) -> float:
    import psutil

    times = psutil.Process(pid).cpu_times()
    return times.user + times.system
