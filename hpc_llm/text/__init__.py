"""Text of others within limits: logs of any origin, opened and cleaned, in blocks that know their line numbers; YAML, JSON, secrets."""
