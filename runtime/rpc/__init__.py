"""Calls and streams between processes: one service protocol, a gRPC and a local transport behind it."""
