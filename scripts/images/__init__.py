"""From pins to checked images: Dockerfiles, builds, checks, inventory, archives."""
