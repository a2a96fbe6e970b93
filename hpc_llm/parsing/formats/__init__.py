"""One module a log format; each defines `FORMAT`."""
