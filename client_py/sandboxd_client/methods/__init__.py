"""The calls of the API, and whether each may be repeated when its answer is lost.

There is a module for each service, so that a program loads the messages of those that it uses.
"""

from sandboxd_client.methods.method import Method, Request, Response

__all__ = ["Method", "Request", "Response"]
