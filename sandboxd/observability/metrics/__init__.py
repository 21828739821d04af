"""Metrics and health over HTTP, for Prometheus and for load balancers without gRPC."""

from sandboxd.observability.metrics.figures import Figures
from sandboxd.observability.metrics.http import Exposition, MetricsServer, PortInUse

__all__ = ["Exposition", "Figures", "MetricsServer", "PortInUse"]
