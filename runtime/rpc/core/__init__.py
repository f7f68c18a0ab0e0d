"""Decisions about connections, without sockets and clocks."""
