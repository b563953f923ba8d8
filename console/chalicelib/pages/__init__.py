"""Pages: frozen dataclasses, each holding exactly what its template may use."""
