"""The programs that read a password from their input, for the patterns that look for one. Standard library only."""

from __future__ import annotations

ASKING = r"""(?:kinit|sudo\ (?:-[a-zA-Z]{1,8}\ ){0,3}-[a-zA-Z]{0,6}S|sudo\ --stdin|cryptsetup|gpg|docker\ login|podman\ login|smbpasswd|chpasswd
    |passwd|iinit|aklog|klog|vncpasswd|wandb\ login|huggingface-cli\ login|hf\ auth(?:\ login)?)"""
"""In the verbose spelling of patterns."""
