"""What `Estimator` is made of: inputs for classifiers, and classifiers in files."""
