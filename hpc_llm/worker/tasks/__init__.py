"""What each task does on the nodes. One module each, with `train(record)`; its program names it (see `main`)."""
