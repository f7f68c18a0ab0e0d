"""What people and the environment say: config.yaml, -D, variables, lists of hosts, files of keys and tokens."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from runtime.common.errors import InvalidInputError
from runtime.config.catalog import all_options
from runtime.config.loading import load, parse_dynamic
from runtime.entrypoint.control.hosts import read_hosts
from runtime.security.cluster_key import read_cluster_key
from runtime.security.tokens import read_cluster_token
from tests.fuzz.surface import Surface

_CONF = Path(__file__).parents[2] / "conf"


def _begin() -> Callable[[bytes], object]:
    directory = Path(tempfile.mkdtemp(prefix="fuzz-conf."))
    (directory / "private").mkdir(mode=0o700)
    private = directory / "private" / "file"
    private.touch(mode=0o600)

    def feed(data: bytes) -> object:
        rest = data[1:]
        match data[:1]:
            case b"h":
                (directory / "workers").write_bytes(rest)
                return read_hosts(directory / "workers")
            case b"k":
                private.write_bytes(rest)
                return read_cluster_key(private)
            case b"t":
                private.write_bytes(rest)
                return read_cluster_token(private)
            case b"d":
                return load(None, environment={}, dynamic=parse_dynamic(_texts(rest)))
            case b"v":
                pairs = (text.partition("=") for text in _texts(rest))
                return load(None, environment={name: value for name, _, value in pairs})
            case _:
                (directory / "config.yaml").write_bytes(rest)
                return load(directory, environment={})

    return feed


def _texts(data: bytes) -> list[str]:
    return data.decode("utf-8", "surrogateescape").split("\n")


def _seeds() -> Sequence[bytes]:
    options = all_options()
    texts = [f"-D{key}={option.shown_default}" for key, option in options.items()]
    variables = [
        f"FLINKLIKE__{key.upper().replace('.', '__').replace('-', '_')}={o.shown_default}" for key, o in options.items()
    ]
    flat = "\n".join(f"{key}: {option.shown_default!r}" for key, option in options.items() if option.shown_default)
    return [
        b"y" + (_CONF / "config.yaml").read_bytes(),
        b"y" + flat.encode(),
        b"ytaskmanager:\n  numberOfTaskSlots: 2\nrest: {port: 8081}\nspark.sql.x: [a, b]\n",
        b"ya: &a {x: 1, y: 2}\nb: &b {x: *a, y: *a}\nc: &c {x: *b, y: *b}\nd: [p, q]\n",
        *(b"h" + (_CONF / name).read_bytes() for name in ("JOB_MASTERS", "workers", "masters")),
        b"hmaster:8081\n[::1]:1\nhost # two\nhost\n",
        b"k" + b"ab" * 32 + b"\n",
        b"t" + b"ab" * 32 + b"\n",
        *(b"d" + "\n".join(texts[at : at + 8]).encode() for at in range(0, len(texts), 8)),
        *(b"v" + "\n".join(variables[at : at + 8]).encode() for at in range(0, len(variables), 8)),
    ]


SURFACES = (
    Surface(
        "configuration",
        _begin,
        _seeds,
        (InvalidInputError,),
        prefix=1,
        tokens=(
            b"&a [x]",
            b"*a",
            b"<<: *a",
            b"? ",
            b"!!python/object:os.system",
            b": ",
            b"\n  ",
            b"10 s",
            b"PT9H",
            b"-D",
            b"9" * 400,
        ),
        cpu_seconds=6.0,
    ),
)
