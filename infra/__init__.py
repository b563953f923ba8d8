"""What runs, deploys and watches Headrace; nothing in `functions/` may import it."""
