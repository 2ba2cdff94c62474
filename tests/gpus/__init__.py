"""Tests that need an NVIDIA GPU: `make gpus`."""
