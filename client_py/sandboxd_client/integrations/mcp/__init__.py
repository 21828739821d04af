"""A server of the Model Context Protocol: sandboxes as tools of desktop and coding agents.

`sandboxd mcp` runs it; see docs/integrations.md. Needs the extra `mcp`.
"""
