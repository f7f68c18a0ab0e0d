"""The TaskManager's side of slots: the pool of slot processes, the attempts in them, and what is measured of them."""
