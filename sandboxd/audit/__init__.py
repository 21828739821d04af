"""The audit log: who did what, in lines that are chained so that a change is detected."""

from sandboxd.audit.log import AuditLog, AuditSettings, PendingEntry

__all__ = ["AuditLog", "AuditSettings", "PendingEntry"]
