"""The router: carries a request to a ring and its events back."""
