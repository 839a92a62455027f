"""`nanospeech serve`: a server for OpenAI's clients, browsers and Home Assistant."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nanospeech.cli import Parser, add_fields, command, read_fields, say
from nanospeech.errors import InputError, reason, require

ABOUT = """Serves speech to any client: OpenAI's interface, WebSocket, a page at /.

  nanospeech serve
  nanospeech serve --model FOLDER --port 8880
  nanospeech serve --host 0.0.0.0 --token-file token.txt

  curl http://127.0.0.1:8000/v1/audio/speech -H 'content-type: application/json' \\
    -d '{"model": "tts-1", "voice": "alloy", "input": "Hello there."}' -o hello.mp3

It needs: pip install 'nanospeech-tts[serve]'. Limits have flags of their own, below."""
TOKEN = "NANOSPEECH_TOKEN"  # an environment variable that holds the token


def build_parser() -> argparse.ArgumentParser:
    """The flags."""
    from nanospeech.serve.settings import Limits

    parser = Parser("nanospeech serve", ABOUT)
    add = parser.add_argument_group("where, and for whom").add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    add("--port", type=int, default=8000, metavar="N", help="0 takes a free one (default: 8000)")
    add(
        "--token-file",
        metavar="FILE",
        help=f"file with the token that clients must send; else the variable {TOKEN} is read."
        " Needed where other machines can reach the server",
    )
    add(
        "--wyoming",
        type=int,
        metavar="PORT",
        help="speak Wyoming too, Home Assistant's protocol, usually on port 10200"
        " (pip install 'nanospeech-tts[wyoming]')",
    )
    add(
        "--ray",
        metavar="CONFIG",
        help="run replicas on Ray Serve; a YAML file says how many, see docs/cluster.md"
        " (pip install 'nanospeech-tts[serve,cluster]')",
    )
    add("--insecure", action="store_true", help="let other machines use it without a token")
    add(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which clients call the server, where there is no token; may be repeated",
    )
    add(
        "--allow-origin",
        action="append",
        default=[],
        metavar="URL",
        help="a web site whose pages may use the server, as https://example.org; may be repeated",
    )
    add("--allow-voices", action="store_true", help="let clients add voices from recordings")
    machine = parser.add_argument_group("with what").add_argument
    machine("--model", help="release folder or Hugging Face repository (default: what ships)")
    machine("--backend", default="auto", metavar="NAME", help="torch, mlx, onnx or another")
    machine("--device", help="for example cpu, cuda, mps or gpu; a GPU if there is one")
    machine("--dtype", help="float32, float16 or bfloat16; onnx: float32 or int8")
    machine("--quantize", type=int, metavar="BITS", help="round the weights to 4 or 8 bits")
    machine("--compile", action="store_true", help="compile the network")
    add_fields(parser.add_argument_group("limits"), Limits)  # type: ignore[arg-type]
    return parser


def read_token(args: argparse.Namespace) -> str | None:
    """The token of the file, or of the environment.

    Raises:
        InputError: the file cannot be read, or is empty.
    """
    if args.token_file is None:
        return os.environ.get(TOKEN, "").strip() or None
    try:
        token = Path(args.token_file).read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(f"cannot read the token in {args.token_file}: {reason(e)}") from e
    if not token:
        raise InputError(f"{args.token_file} is empty; it should hold the token")
    return token


def read_settings(args: argparse.Namespace) -> Any:
    """ServeSettings of the flags."""
    from nanospeech.serve.settings import Limits, ServeSettings

    return ServeSettings(
        host=args.host,
        port=args.port,
        token=read_token(args),
        insecure=args.insecure,
        hosts=tuple(args.allow_host),
        origins=tuple(origin.rstrip("/") for origin in args.allow_origin),
        allow_voices=args.allow_voices,
        limits=read_fields(args, Limits),
    )


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns 0 when it is told to stop."""
    args = build_parser().parse_args(argv)
    settings = read_settings(args)
    for package in ("starlette", "uvicorn", "prometheus_client"):
        require(package, "serve")
    from nanospeech.load import load_engine
    from nanospeech.serve.run import few_arenas, listen, run
    from nanospeech.serve.service import SpeechService
    from nanospeech.serve.wyoming import listen_wyoming, serve_wyoming

    few_arenas()
    where = args.model, args.backend, args.device, args.dtype, args.quantize, args.compile or None
    if args.ray is not None:
        if args.wyoming is not None:
            raise InputError("--ray serves HTTP alone; start another server for --wyoming")
        from nanospeech.serve.ray_serve import run_replicas

        run_replicas(where, settings, Path(args.ray))
        return 0
    listening = listen(settings.host, settings.port)
    beside = None if args.wyoming is None else listen_wyoming(settings, args.wyoming)
    service = SpeechService(lambda: load_engine(*where), settings.limits)
    service.warm()
    host = f"[{settings.host.strip('[]')}]" if ":" in settings.host else settings.host
    say(
        f"{service.model} ({service.engine.backend}, {service.engine.device}) speaks at "
        f"http://{host}:{listening.getsockname()[1]}/"
    )
    more = []
    if beside is not None:
        say(f"and Wyoming at tcp://{host}:{beside.getsockname()[1]}")
        more.append(serve_wyoming(service, settings, beside))
    asyncio.run(run(service, settings, listening, more))
    return 0


if __name__ == "__main__":
    sys.exit(main())
