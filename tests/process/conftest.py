"""Fixtures of tests with real processes."""

from tests.kit.etcd import etcd

__all__ = ["etcd"]
