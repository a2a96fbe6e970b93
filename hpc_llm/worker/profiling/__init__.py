"""What a few steps behind the measured ones are made of: `--profile torch`."""
