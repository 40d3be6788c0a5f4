"""Each input that strangers can send to an updater, as a target, and the fuzzer that invents inputs."""
