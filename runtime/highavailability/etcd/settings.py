"""EtcdSettings: how to reach etcd, and which versions are refused."""

from __future__ import annotations

from dataclasses import dataclass, field

from runtime.common.errors import PermanentError

UNSAFE_VERSIONS = frozenset({"3.5.0", "3.5.1", "3.5.2"})
"""They can lose consistency after a crash."""


class UnsafeEtcdVersionError(PermanentError):
    """etcd runs in one of UNSAFE_VERSIONS."""


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """`endpoints` are host:port. Paths of PEM files turn on TLS: `ca` alone, or with `cert` and `key` mutual TLS.

    `quota_bytes` is etcd's quota, for versions before 3.6, which do not report it.
    """

    endpoints: tuple[str, ...]
    username: str = ""
    password: str = field(default="", repr=False)
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    allow_unsafe_version: bool = False
    quota_bytes: int = 2 * 1024**3

    def __post_init__(self) -> None:
        assert self.endpoints, "no etcd endpoint"
        assert bool(self.tls_cert) == bool(self.tls_key), "a client certificate needs its key"
        assert self.tls_ca or not self.tls_cert, "mutual TLS needs the CA of etcd's certificate"


def check_version(version: str, *, endpoint: str, allow_unsafe: bool) -> None:
    """Raises UnsafeEtcdVersionError for one of UNSAFE_VERSIONS unless `allow_unsafe`."""
    if not allow_unsafe and version.split("-", maxsplit=1)[0] in UNSAFE_VERSIONS:
        message = (
            f"etcd at {endpoint} is version {version}: 3.5.0 to 3.5.2 can lose consistency after a crash; "
            "upgrade to 3.5.3 or newer, or set high-availability.etcd.allow-unsafe-version: true"
        )
        raise UnsafeEtcdVersionError(message)
