"""What runs leave on disk: their paths, files and figures. Travels with each run, standard library only."""
