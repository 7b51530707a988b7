"""Tasks, data sets and classifiers that Clipper is measured on."""
