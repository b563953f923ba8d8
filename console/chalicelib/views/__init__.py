"""Views: a request in, use cases asked, a page out.  One module for each noun, with its pages."""
