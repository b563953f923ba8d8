"""Views: a request in, use cases asked, a page out.  One module for each thing that is shown."""
