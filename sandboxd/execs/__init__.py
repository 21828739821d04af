"""Commands of a session: their requests, output, limits and endings."""
