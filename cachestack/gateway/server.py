"""From a configuration to a server that listens: the stack, the application, uvicorn."""

from __future__ import annotations

import gc
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import uvicorn

from cachestack.access import Authenticator, open_access
from cachestack.bodies.offered import Models, Offered
from cachestack.build import build_on
from cachestack.errors import ConfigError
from cachestack.folders import home_folder
from cachestack.gateway.app import create_app
from cachestack.gateway.config import GatewayConfig, is_loopback
from cachestack.gateway.engines import engines_from
from cachestack.gateway.readiness import Readiness
from cachestack.gateway.requesting import Within, no_context
from cachestack.stack import CacheStack

_BACKLOG = 2048
log = logging.getLogger("cachestack.gateway")


class Gateway:
    """A stack behind an address. `serve` blocks until it is stopped; `stop` may be called from any thread."""

    def __init__(
        self, config: GatewayConfig, stack: CacheStack, offered: Sequence[Offered], authenticator: Authenticator
    ) -> None:
        self.config = config
        self.stack = stack
        encoder = stack.performer.encoder
        self.models = Models(tuple(offered), None if encoder is None else encoder.name)
        self.readiness = Readiness()
        self.authenticator = authenticator
        app = create_app(
            stack,
            self.models,
            authenticator,
            self.readiness,
            max_body_bytes=config.max_body_bytes,
            allowed_hosts=config.allowed_hosts,
            within=_tracing(stack) if config.otel else no_context,
            in_turns=True,
        )
        self._server = uvicorn.Server(uvicorn_config(app, config))
        self._socket: socket.socket | None = None

    @staticmethod
    def of(config: GatewayConfig) -> Gateway:
        """With the engines that the configuration names. Nothing is loaded yet. Raises ConfigError, PolicyError."""
        engines, offered = engines_from(config)
        stack = build_on(
            CacheStack,
            engines,
            encoder=config.encoder,
            policies=config.policies,
            home=config.home,
            store=config.store,
            request_log=config.request_log,
            request_log_text=config.request_log_text,
        )
        access = open_access(config.auth, config.home or home_folder(), is_admin_open=is_loopback(config.host))
        return Gateway(config, stack, offered, access)

    @property
    def url(self) -> str:
        """Where it listens; `open` first."""
        assert self._socket is not None, "the gateway has been opened"
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def open(self) -> None:
        """Take the address. Raises ConfigError where that cannot be, or where strangers would need no key."""
        config = self.config
        if self.authenticator.is_open and not is_loopback(config.host):
            raise ConfigError(
                f"host {config.host} is not this machine alone, and there are no keys: whoever reaches it could use "
                "the models and read the cache; make a key with `cachestack keys create`, or listen on 127.0.0.1"
            )
        family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
        taken = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named, or Nagle's algorithm stays on
        try:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind((config.host.strip("[]"), config.port))
            taken.listen(_BACKLOG)  # who comes from now on waits, and is not refused
        except OSError as error:
            taken.close()
            raise ConfigError(
                f"cannot listen on {config.host}:{config.port}: {error.strerror}; choose another with --host and --port"
            ) from None
        self._socket = taken

    def greeting(self) -> list[str]:
        """Where it listens, who answers, and how to try it."""
        models = self.models
        engines = ", ".join(f"{one.engine} ({one.model or 'any model'})" for one in models.engines)
        needs = "no key is needed" if self.authenticator.is_open else "a key is needed"
        body = f'{{"model":"{models.example}","messages":[{{"role":"user","content":"Hello!"}}]}}'
        curl = f"curl {self.url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'"
        return [f"CacheStack listens on {self.url} · engine {engines} · {needs}", f"Try: {curl}"]

    def serve(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Until Ctrl-C, SIGTERM or `stop`. Raises what kept the models from being loaded."""
        assert self._socket is not None, "the gateway has been opened"
        threading.Thread(target=self._warm_up, args=(on_ready,), name="cachestack-warm-up", daemon=True).start()
        try:
            with _terminated_as_interrupted():
                self._server.run(sockets=[self._socket])
        except KeyboardInterrupt:  # uvicorn gives a signal on after an orderly end
            pass
        finally:
            self._socket.close()
            self.stack.close()
        if self.readiness.error is not None:
            raise self.readiness.error

    def close(self) -> None:
        """Give the address back, where `serve` was not called."""
        if self._socket is not None:
            self._socket.close()

    def stop(self) -> None:
        self._server.should_exit = True

    def _warm_up(self, on_ready: Callable[[], None]) -> None:
        self.readiness.warm_up(self.stack)
        if self.readiness.error is None:
            gc.collect()
            gc.freeze()  # what is there now stays: no collection looks through it again
            on_ready()
        else:
            self.stop()


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """A SIGTERM that uvicorn gives on would end the process before what was counted is written."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _tracing(stack: CacheStack) -> Within:
    from cachestack.gateway.tracing import begin_tracing

    return begin_tracing(stack)


def uvicorn_config(app: Any, config: GatewayConfig, *, lifespan: Literal["on", "off"] = "on") -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="httptools",
        loop="asyncio" if sys.platform == "win32" else "uvloop",
        ws="none",
        lifespan=lifespan,
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=max(1, round(config.close_wait_s)),
        backlog=_BACKLOG,
    )
