"""The embedded engine's process: an HTTP server that samples from any Hugging Face causal LM, over the wire of
`shared.engine.server`. Its logprobs are those of the filtered distribution (see `sampling`).
"""

from __future__ import annotations

import argparse
import logging
import sys
import threading

import transformers
import uvicorn

from openclaw_rl.shared.engine.server import create_app, http_server, live_version
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.logs import ENGINE_PLAIN, configure_logs
from openclaw_rl.shared.process import die_with_parent
from openclaw_rl.trainer_local.embedded.engine import EmbeddedEngine, EngineOptions
from openclaw_rl.trainer_local.models.loading import CheckpointError

log = logging.getLogger(__name__)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="openclaw_rl.trainer_local.embedded.server", description="Serve a causal LM over SGLang's wire."
    )
    parser.add_argument("--model", required=True, help="Hugging Face folder or hub name: version 0")
    parser.add_argument(
        "--tokenizer", default="", help="tokenizer folder, if not the model's own (stop strings need one)"
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--live", default="", metavar="N=PATH", help="version that is live from the start")
    parser.add_argument(
        "--checkpoints", default="", help="folder where version N lies at N/served, loaded when asked for"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N")
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16", "float16"])
    parser.add_argument("--context-length", type=int, default=0, help="0 takes the model's own")
    parser.add_argument("--max-batch", type=int, default=32, help="answers decoded together")
    parser.add_argument("--max-versions", type=int, default=4, help="versions kept in memory")
    parser.add_argument(
        "--max-queue", type=int, default=256, help="requests of a priority, running and waiting, before 503"
    )
    parser.add_argument("--cache-megabytes", type=int, default=512, help="keys and values of seen prompts")
    parser.add_argument("--incremental-streaming-output", action="store_true", help="events carry new tokens only")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Serve until SIGTERM."""
    die_with_parent()
    flags = parse(sys.argv[1:] if arguments is None else arguments)
    configure_logs("engine", flags.log_level, plain=ENGINE_PLAIN)
    transformers.utils.logging.disable_progress_bar()
    sys.setswitchinterval(0.0005)  # a thread that loads weights must not hold up the model's thread for long
    server: uvicorn.Server | None = None
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        if server is not None:
            server.should_exit = True

    try:
        own = {name: getattr(flags, name) for name in EngineOptions.__struct_fields__ if hasattr(flags, name)}
        options = EngineOptions(**own | {"live": live_version(flags.live), "cache_bytes": flags.cache_megabytes << 20})
        engine = EmbeddedEngine(options, on_failure=fail)
    except (CheckpointError, ConfigError) as error:
        raise SystemExit(f"the engine cannot start: {error}") from error
    log.info("serving %s, version %d live, context %d", flags.model, engine.versions.live, engine.context_length)
    app = create_app(engine, incremental=flags.incremental_streaming_output)
    server = http_server(app, host=flags.host, port=flags.port)
    server.run()
    sys.exit(1 if failed.is_set() or not server.started else 0)


if __name__ == "__main__":
    main()
