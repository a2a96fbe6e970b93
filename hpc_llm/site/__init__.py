"""What is true of a site: clusters, their parts and limits, the profiles that state them."""
