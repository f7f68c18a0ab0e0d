"""An identity provider: keys, JSON Web Tokens of them, tokens that it should not sign, and its key set on https."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.kit.services.certificates import KeyPair

ISSUER, AUDIENCE = "https://id.example.com/", "flinklike"
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


@cache
def _made(_: int, bits: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


def rsa_key(number: int = 0, bits: int = 2048) -> rsa.RSAPrivateKey:
    """Made once: it takes a while. `number` tells them apart."""
    return _made(number, bits)


def public_pem(key: PrivateKey) -> bytes:
    """As a key file has it."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def private_pem(key: PrivateKey) -> bytes:
    """As no key file may have it."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def jwk(key: PrivateKey, kid: str, **more: Any) -> dict[str, Any]:
    """An entry of a key set."""
    match key:
        case rsa.RSAPrivateKey():
            made = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        case ec.EllipticCurvePrivateKey():
            made = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        case _:
            made = jwt.algorithms.OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {**made, "kid": kid, **more}


def key_set(*entries: dict[str, Any]) -> bytes:
    """The document."""
    return json.dumps({"keys": entries}).encode()


def claims(now: float, **more: Any) -> dict[str, Any]:
    """What a good token says; None takes a claim away."""
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "sam", "role": "submitter", "namespace": "team-a"}
    return {name: value for name, value in {**said, "iat": now, "exp": now + 300, **more}.items() if value is not None}


def signed(said: dict[str, Any], key: PrivateKey | bytes, algorithm: str, **header: Any) -> str:
    """As an identity provider signs it."""
    return jwt.PyJWS().encode(json.dumps(said).encode(), key, algorithm, headers={"typ": "JWT", **header})


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def by_hand(header: bytes, payload: bytes, secret: bytes = b"") -> str:
    """Any header and payload, signed by HMAC whatever they say; "" for a secret leaves the signature out."""
    text = f"{_part(header)}.{_part(payload)}"
    return f"{text}.{_part(hmac.new(secret, text.encode(), hashlib.sha256).digest()) if secret else ''}"


@dataclass
class KeySetServer:
    """What is answered, and how often it was asked."""

    url: str
    body: bytes = b""
    status: int = 200
    asked: int = 0


@contextmanager
def serving(shown: KeyPair, body: bytes) -> Iterator[KeySetServer]:
    """A key set on https, at a port of 127.0.0.1."""
    server = KeySetServer("", body)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.asked += 1
            self.send_response(server.status)
            self.send_header("location", f"{server.url}/elsewhere")
            self.send_header("content-length", str(len(server.body)))
            self.end_headers()
            self.wfile.write(server.body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(shown.cert, shown.key)
    http.socket = tls.wrap_socket(http.socket, server_side=True)
    server.url = f"https://127.0.0.1:{http.server_address[1]}/keys"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
