"""Long runs with kubelets and pods that `make soak` starts, and no other command."""
