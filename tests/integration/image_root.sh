#!/bin/sh
# Run a command in an image's file system as its user would have it under a read-only root: no capability, no new
# privileges, nothing to write but /tmp and the state folder, no shell. Needs a mount namespace of its own.
# usage: unshare --mount --pid --fork --kill-child sh image_root.sh ROOT UID COMMAND...
set -eu
root=$1
id=$2
shift 2
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind -o ro /sys "$root/sys"
mount -t tmpfs -o mode=1777,nosuid,nodev,noexec tmpfs "$root/tmp"
mount -t tmpfs -o "mode=0711,uid=$id,gid=$id" tmpfs "$root/var/lib/amdgpu-exporter"
for shell in sh dash bash; do
  [ ! -e "$root/usr/bin/$shell" ] || mount --bind /dev/null "$root/usr/bin/$shell"
done
mount -o remount,bind,ro "$root"
mount -t tmpfs tmpfs "$root/dev"
exec setpriv --no-new-privs chroot --userspec="$id:$id" --groups="$id" "$root" "$@"
