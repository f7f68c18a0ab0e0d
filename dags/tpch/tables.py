"""TPC-H tables as parquet, made by tpchgen-cli, once per scale factor."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

PARTED = ("lineitem", "orders")
WHOLE = ("customer", "supplier", "nation", "region")
PARTS = 4


def data_directory() -> Path:
    """Where data and reports go: $FLINKLIKE_DATA_DIR, or run/data of this checkout. Workers and slots share it."""
    return Path(os.environ.get("FLINKLIKE_DATA_DIR") or Path(__file__).resolve().parents[2] / "run" / "data")


def make_tables(directory: Path, scale_factor: float) -> Path:
    """The directory with all tables; an existing one is reused. It appears in one step."""
    target = directory / f"tpch-sf{scale_factor:g}"
    if target.is_dir():
        return target
    directory.mkdir(parents=True, exist_ok=True)
    scratch = directory / f".{target.name}-{os.getpid()}"
    try:
        _generate(scratch, scale_factor, PARTED, f"--parts={PARTS}")
        _generate(scratch, scale_factor, WHOLE)
        scratch.rename(target)
    except OSError:
        if not target.is_dir():  # another run was faster
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def table_files(data: str | Path, table: str) -> list[str]:
    """The parquet files of a table, in order."""
    base = Path(data)
    files = sorted((base / table).glob("*.parquet")) or [base / f"{table}.parquet"]
    return [str(file) for file in files]


def _generate(directory: Path, scale_factor: float, tables: tuple[str, ...], *more: str) -> None:
    beside_python = Path(sys.executable).with_name("tpchgen-cli")
    program = str(beside_python) if beside_python.exists() else "tpchgen-cli"
    command = [program, "parquet", "-s", f"{scale_factor:g}", f"--tables={','.join(tables)}", *more]
    done = subprocess.run([*command, "-o", str(directory)], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        message = f"{' '.join(command)} failed with exit code {done.returncode}: {done.stderr.strip()[-2000:]}"
        raise RuntimeError(message)
