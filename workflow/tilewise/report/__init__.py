"""Present the results: tables, figures, claims and the page."""
