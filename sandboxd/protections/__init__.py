"""Proofs of the isolation: attacks on a sandbox made for that, and the report."""
