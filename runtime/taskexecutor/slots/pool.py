"""SlotProcessPool: one idle, pre-forked process per slot, and the attempts that run in them."""

from __future__ import annotations
