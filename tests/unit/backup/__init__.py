"""Tests of the role `backup`."""
