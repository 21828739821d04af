"""Which worker owns a session: `contract` has the interface, `alone` is for a single daemon."""
