"""Who may stay connected, decided without sockets and clocks."""
