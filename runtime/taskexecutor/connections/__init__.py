"""Connections of a TaskManager: to the ResourceManager, to JobMaster processes, to etcd."""
