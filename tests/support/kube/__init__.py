"""Charts and Kubernetes: helm and its friends, and a real API server."""
