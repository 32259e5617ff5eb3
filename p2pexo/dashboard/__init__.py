"""The page that shows the cluster and lets one try a model: static files, served by the API."""
