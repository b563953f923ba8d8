"""Views take a request, call use cases and return a page.  One module for each noun."""
