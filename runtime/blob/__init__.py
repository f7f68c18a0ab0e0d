"""Large objects: a store on any fsspec directory, the BlobServer, and the client with its local cache.

Objects are immutable, named by digest and upload (R19), complete and synced before any reader can see them (R20).
"""
