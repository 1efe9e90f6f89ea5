"""HTTP from hostile programs on a unix socket, bounded: what every gateway of ours shares.

A connection is parsed by aiohttp's strict parser; bytes that are not HTTP are counted and hung up on; a body is bounded
in size and time, never decompressed, and is one strict JSON object.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from aiohttp import web

from grader.request import Refused
from grader.strict import MAX_DEPTH, StrictError, parse_object

_QUIET = logging.getLogger("grader.http.quiet")
_QUIET.setLevel(logging.CRITICAL + 1)  # what a sandbox sends must not reach our log


class HangUp(asyncio.Protocol):
    """The connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class StrictConnection(web.RequestHandler):
    """One connection; bytes that are not HTTP are counted."""

    malformed: Callable[[], None]

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        self.malformed()
        response = error(status, "not a request this server can read")
        response.force_close()
        return response


def strict_connection(server: web.Server, malformed: Callable[[], None]) -> StrictConnection:
    """The protocol of one accepted connection; ``malformed`` is called for bytes that are not HTTP."""
    connection = StrictConnection(
        server,
        loop=asyncio.get_running_loop(),
        logger=_QUIET,
        access_log=_QUIET,
        auto_decompress=False,
        keepalive_timeout=600.0,
        lingering_time=0.0,
    )
    connection.malformed = malformed
    return connection


def error(status: int, message: str) -> web.Response:
    """An error in the form that clients of OpenAI's API read."""
    body = {"error": {"message": message, "type": "invalid_request_error", "code": status}}
    return web.json_response(body, status=status)


async def read_object(
    request: web.BaseRequest, *, limit: int, seconds: float, max_depth: int = MAX_DEPTH
) -> dict[str, Any]:
    """The JSON object of a request, bounded in size, time and depth. Raises Refused."""
    if (request.content_length or 0) > limit:
        raise Refused(413, f"a request is at most {limit} bytes", attempt="oversized request", cut=True)
    try:
        async with asyncio.timeout(seconds):
            data = await _read(request, limit)
    except TimeoutError:
        raise Refused(
            408, f"the request did not arrive within {seconds:.0f} s", attempt="slow request", cut=True
        ) from None
    try:
        return parse_object(data, max_depth)
    except StrictError as broken:
        raise Refused(400, f"the body is refused: {broken}", attempt="malformed body") from None


async def _read(request: web.BaseRequest, limit: int) -> bytes:
    data = bytearray()
    try:
        async for chunk in request.content.iter_any():
            data += chunk
            if len(data) > limit:
                break
    except Exception:  # broken framing or a client that hung up: aiohttp has a dozen names for it
        raise Refused(400, "the body broke off", cut=True) from None
    if len(data) > limit:
        raise Refused(413, f"a request is at most {limit} bytes", attempt="oversized request", cut=True)
    return bytes(data)
