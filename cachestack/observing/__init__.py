"""What a stack shows to the outside: Prometheus metrics, OpenTelemetry spans, a log of requests."""
