"""Tests that start Java."""

from __future__ import annotations

import shutil

import pytest

needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="there is no `java`")
