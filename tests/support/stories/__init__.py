"""Words in which tests tell their stories."""
