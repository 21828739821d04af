"""A gateway for the official E2B SDKs: they use sandboxes of this daemon, unchanged.

`sandboxd e2b-gateway` runs it; see docs/integrations.md. Needs the extra `e2b`.
"""
