"""A thin driver of etcd's v3 API over grpc.aio. Components know only the KeyValueStore protocol, not etcd.

The rules that make it safe: one channel per endpoint, and rotation; pings with a deadline; reconnects after a second at
most; an error of its own for writes whose outcome is unknown; a new login when a token has expired; watches that resume
at the last revision, and never end without an error.
"""
