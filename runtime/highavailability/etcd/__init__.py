"""A thin driver of etcd's v3 API over grpc.aio: nothing else in this system knows that there is an etcd.

The rules that make it safe: one channel per endpoint and rotation; pings that are answered in time; reconnects after
a second at most; writes whose outcome is unknown say so; a new login when a token has expired; watches that resume at
the last revision and never end silently.
"""
