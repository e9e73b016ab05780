"""A Vagrant box for libvirt, of the same Debian that the lab's hosts are.

The kernel is handed to the emulator, so the disk needs no boot loader.  Whether this machine could
lend its processor to a virtual one is not asked: the emulator computes all of it, slowly, anywhere.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from tests.provisioning.commands import run
from tests.provisioning.root import CACHE, machine_recipe, make_root, overlay

SIZE_GB = 4
KERNEL_FILES = ("vmlinuz", "initrd.img")
# the key that Vagrant replaces when it has logged in for the first time
INSECURE_KEY = "/usr/share/rubygems-integration/all/gems/vagrant-*/keys/vagrant.pub"
NETWORK = "[Match]\nName=eth0\n[Network]\nDHCP=ipv4\n"
VAGRANTFILE = """
Vagrant.configure("2") do |config|
  config.vm.provider "libvirt" do |libvirt|
    libvirt.driver = "qemu"
    libvirt.cpu_mode = "custom"
    libvirt.cpu_model = "qemu64"
    libvirt.kernel = File.expand_path("vmlinuz", __dir__)
    libvirt.initrd = File.expand_path("initrd.img", __dir__)
    libvirt.cmd_line = "root=/dev/vda rw console=ttyS0 net.ifnames=0"
  end
end
"""


def make_box(suite: str) -> Path:
    """The file for `vagrant box add`, made now if it is not there yet."""
    recipe = machine_recipe(suite)
    box = CACHE / "boxes" / f"{recipe.name()}.box"
    if box.exists():
        return box
    root = make_root(recipe)
    box.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=box.parent) as name:
        directory = Path(name)
        with overlay(root, directory / "layer") as merged:
            let_vagrant_in(merged)
            for file in KERNEL_FILES:
                shutil.copy(merged / file, directory)
            raw = directory / "raw.img"
            run(["mke2fs", "-q", "-t", "ext4", "-d", merged, raw, f"{SIZE_GB}G"])
        run(["qemu-img", "convert", "-O", "qcow2", raw, directory / "box.img"])
        description = {"provider": "libvirt", "format": "qcow2", "virtual_size": SIZE_GB}
        (directory / "metadata.json").write_text(json.dumps(description))
        (directory / "Vagrantfile").write_text(VAGRANTFILE)
        unfinished = directory / box.name
        files = ["metadata.json", "Vagrantfile", "box.img", *KERNEL_FILES]
        run(["tar", "-C", directory, "-cf", unfinished, *files])
        unfinished.rename(box)
    return box


def let_vagrant_in(root: Path) -> None:
    """What Vagrant expects of a box: its user, who may do all, and an address from DHCP."""
    files = {
        "etc/fstab": "/dev/vda / ext4 defaults 0 0\n",
        "etc/systemd/network/eth0.network": NETWORK,
        "etc/sudoers.d/vagrant": "vagrant ALL=(ALL) NOPASSWD: ALL\n",
    }
    for name, content in files.items():
        (root / name).write_text(content)
    run(["systemctl", f"--root={root}", "enable", "systemd-networkd", "ssh"])
    run(["useradd", "--root", root, "--create-home", "--shell", "/bin/bash", "vagrant"])
    home = root / "home/vagrant"
    (home / ".ssh").mkdir(mode=0o700)
    (key,) = Path("/").glob(INSECURE_KEY.lstrip("/"))
    shutil.copy(key, home / ".ssh/authorized_keys")
    run(["chroot", root, "chown", "--recursive", "vagrant:vagrant", "/home/vagrant"])
