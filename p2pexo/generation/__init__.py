"""The one request, event, error and text type that every floor speaks."""
