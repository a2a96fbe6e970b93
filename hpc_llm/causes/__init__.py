"""The causes of failure: data, how their signs are found in a text, and which of those found is the root."""
