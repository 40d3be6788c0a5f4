"""The image, the compose file and the conditions of a container, without a container."""
