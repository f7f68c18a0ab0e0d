"""The keys of JSON Web Tokens: from a file that is watched, or fetched from an address (R48).

No sign-in waits for another service: keys are fetched in the background, again after a period, and sooner
when a token names an unknown key, but no more often than `pause`. After a failed fetch the earlier keys stay.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

import httpx

from runtime.common.clock import Clock
from runtime.common.errors import InvalidInputError, UnavailableError
from runtime.common.watched import Watched
from runtime.security.jwt_keys import KEY_SET_BYTES_MAX, JwtKeys, parse_key_set, read_key_file

logger = logging.getLogger(__name__)

FETCH_SECONDS = 10.0


class FileKeys:
    """Implements `JwtKeySource` over a file; what replaces it is seen within two seconds (R47)."""

    def __init__(self, path: Path, clock: Clock, *, is_set: bool) -> None:
        """Raises InvalidInputError for a file that cannot be used."""
        self._watched = Watched(
            "key of JWTs",
            [path],
            lambda: _read_key_set(path) if is_set else read_key_file(path),
            now=clock.monotonic,
            log=logger,
        )

    def keys(self) -> JwtKeys:
        """Those that the file holds."""
        return self._watched.value

    def look_again(self) -> bool:
        """The file is looked at anyway."""
        return False


def _read_key_set(path: Path) -> JwtKeys:
    try:
        with path.open("rb") as file:
            return parse_key_set(file.read(KEY_SET_BYTES_MAX + 1))
    except OSError as error:
        message = f"security.jwt.jwks: {path} cannot be read ({error.strerror})"
        raise InvalidInputError(message) from error
    except InvalidInputError as error:
        message = f"security.jwt.jwks: {path}: {error}"
        raise InvalidInputError(message) from error


@dataclass(frozen=True, slots=True)
class KeySetAddress:
    """`ca_file`: the CA that is trusted, None for those of the system. Times in seconds."""

    url: str
    ca_file: Path | None
    refresh: float
    pause: float


class FetchedKeys:
    """Implements `JwtKeySource` over https. `run` fetches; all of it is of one loop."""

    def __init__(self, address: KeySetAddress, clock: Clock) -> None:
        """Raises InvalidInputError for CAs that cannot be used."""
        self._address = address
        self._clock = clock
        self._tls = _tls(address.ca_file)
        self._keys: JwtKeys | None = None
        self._wanted = asyncio.Event()
        self._is_fetching = True
        """From the beginning: `run` fetches at once."""
        self._failure = ""
        self._fetched_at = clock.monotonic()

    def keys(self) -> JwtKeys:
        """Those that were fetched last."""
        if self._keys is None:
            message = "the keys of JWTs (security.jwt.jwks) could not be fetched yet: ask again"
            raise UnavailableError(message)
        return self._keys

    def look_again(self) -> bool:
        """Fetch them, unless that was done a moment ago. A failure leaves open whether there is such a key."""
        if not self._is_fetching and self._clock.monotonic() - self._fetched_at >= self._address.pause:
            self._is_fetching = True
            self._wanted.set()
        return self._is_fetching or bool(self._failure)

    async def run(self) -> None:
        """Fetch them, and again. Eternal."""
        while True:
            self._wanted.clear()
            self._is_fetching = True
            await self._fetch()
            self._is_fetching = False
            self._fetched_at = self._clock.monotonic()
            pause = self._address.pause if self._failure else self._address.refresh
            timer = asyncio.get_running_loop().call_later(pause, self._wanted.set)
            try:
                await self._wanted.wait()
            finally:
                timer.cancel()

    async def _fetch(self) -> None:
        failure = ""
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                keys = parse_key_set(await self._read())
        except TimeoutError:
            failure = f"no answer within {FETCH_SECONDS:g} s"
        except (httpx.HTTPError, httpx.InvalidURL, OSError, InvalidInputError) as error:  # httpx passes SSLError on
            failure = str(error) or type(error).__name__
        else:
            if keys != self._keys:
                self._keys = keys
                logger.info("there are %d keys of JWTs in %s", len(keys.keys), self._address.url)
        if failure and failure != self._failure:
            kept = "what was fetched before stays in use" if self._keys else "nobody signs in by a JWT before they are"
            logger.warning("the keys of JWTs cannot be fetched from %s, %s: %s", self._address.url, kept, failure)
        self._failure = failure

    async def _read(self) -> bytes:
        """At most KEY_SET_BYTES_MAX and a piece. No redirect is followed: the option says who is trusted."""
        data = bytearray()
        headers = {"accept": "application/json", "accept-encoding": "identity"}
        async with (
            httpx.AsyncClient(verify=self._tls, follow_redirects=False, timeout=FETCH_SECONDS) as client,
            client.stream("GET", self._address.url, headers=headers) as answer,
        ):
            if answer.status_code != httpx.codes.OK:
                message = f"it answers {answer.status_code}"
                raise InvalidInputError(message)
            async for piece in answer.aiter_raw():
                data += piece
                if len(data) > KEY_SET_BYTES_MAX:
                    break
        return bytes(data)


def _tls(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        message = f"security.jwt.jwks-ca-file: {ca_file} holds no certificates that can be read ({error.strerror})"
        raise InvalidInputError(message) from error
