"""How patient the parts of a whole Airflow are with its SQLite file, in which one of them writes at a time.

The scheduler and the triggerer end when they do not get it in time, which is 5 s by default, and nobody starts them
again. The API server must not wait any longer than that: the request that it waits for may be its own.
"""

from __future__ import annotations

import sys

CONNECT_ARGS = {"timeout": 5.0 if "api-server" in sys.argv else 60.0}
