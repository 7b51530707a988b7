"""From results to what people look at: tables, figures and pages."""
