"""Figures and health over HTTP, for Prometheus and for balancers that speak no gRPC."""

from sandboxd.metrics.figures import Figures
from sandboxd.metrics.http import MetricsServer, PortInUse

__all__ = ["Figures", "MetricsServer", "PortInUse"]
