"""What `spark.master` may be: where Spark runs the tasks of jobs, and who makes the secret of its driver (D-139)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from urllib.parse import urlsplit

SPARK_MASTER = "spark.master"
DEFAULT_MASTER = "local[*]"
CONNECT_PORT = 15002
EXPECTED = "expected local[*], local[n], spark://host:port, k8s://https://host:port, yarn or sc://host:port"
_HOST = r"(\[[0-9A-Fa-f:.]+\]|[^\s/:,;\[\]@?#]+)"


class MasterKind(Enum):
    """LOCAL: tasks run in the driver's JVM. CONNECT: there is no driver here, but the client of one elsewhere. With the
    others the driver is here and executors are elsewhere.
    """

    LOCAL = "local"
    STANDALONE = "spark"
    KUBERNETES = "k8s"
    YARN = "yarn"
    CONNECT = "sc"

    @property
    def makes_secrets(self) -> bool:
        """True where Spark makes a secret for each driver and its executors by itself."""
        return self in {MasterKind.LOCAL, MasterKind.KUBERNETES, MasterKind.YARN}


_FORMS: Mapping[MasterKind, re.Pattern[str]] = MappingProxyType(
    {
        # `local[n,f]` and the several hosts of a standby master are Spark's own forms.
        MasterKind.LOCAL: re.compile(r"local(\[(\*|[1-9]\d*)(,\s*[1-9]\d*)?\])?"),
        MasterKind.STANDALONE: re.compile(r"spark://[^\s/:,]+:\d+(,[^\s/:,]+:\d+)*"),
        MasterKind.KUBERNETES: re.compile(rf"k8s://(https?://)?{_HOST}(:\d+)?"),
        MasterKind.YARN: re.compile("yarn"),
        MasterKind.CONNECT: re.compile(rf"sc://{_HOST}(:\d+)?(/(;[^\s]*)?)?"),
    }
)


def kind_of(master: str) -> MasterKind | None:
    """None for what is no master."""
    return next((kind for kind, form in _FORMS.items() if form.fullmatch(master)), None)


def is_connect(conf: Mapping[str, str]) -> bool:
    """True for the conf of a TaskManager whose slots are clients of a Spark Connect server."""
    return conf.get(SPARK_MASTER, "").startswith("sc://")


def connect_host(master: str) -> str:
    """The host of a `sc://` master."""
    return urlsplit(master.partition(";")[0]).hostname or ""


def connect_endpoint(master: str) -> str:
    """host:port of a `sc://` master."""
    split, name = urlsplit(master.partition(";")[0]), connect_host(master)
    host = f"[{name}]" if ":" in name else name
    return f"{host}:{split.port or CONNECT_PORT}"


def connect_parameters(master: str) -> dict[str, str]:
    """What stands behind the host of a `sc://` master."""
    _, _, text = master.partition(";")
    return {key: value for key, _, value in (one.partition("=") for one in text.split(";") if one)}


def has_tls(master: str) -> bool:
    """True for a `sc://` master that is reached by TLS."""
    return connect_parameters(master).get("use_ssl", "").lower() == "true"
