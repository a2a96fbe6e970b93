"""From sources to tokens: what task `prepare` does, on a login node or in a job without a GPU. No torch."""
