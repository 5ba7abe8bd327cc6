"""What ``make lab`` adds to JupyterLab: notebooks of this checkout are saved without outputs, so that looking at them changes no file."""

from fedlib.commands.lab import without_outputs

c.FileContentsManager.pre_save_hook = without_outputs  # noqa: F821
# Sockets that only their owner may open, instead of unencrypted ones on the loopback.
c.KernelManager.transport = "ipc"  # noqa: F821
