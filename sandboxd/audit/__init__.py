"""The audit log: who did what, in lines that are chained so that a change shows."""

from sandboxd.audit.log import AuditLog, AuditSettings, Note

__all__ = ["AuditLog", "AuditSettings", "Note"]
