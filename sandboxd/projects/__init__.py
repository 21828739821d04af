"""Projects: files that users keep beyond sessions, and that sessions see read-only."""
