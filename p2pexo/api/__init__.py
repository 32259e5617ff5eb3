"""The HTTP face: dialects, errors, streams, cluster endpoints."""
