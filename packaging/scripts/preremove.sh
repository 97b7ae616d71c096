#!/bin/sh
# Stops the service before its files go, but not at an upgrade: dpkg says "remove",
# rpm says that 0 versions are left.
set -e

case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now leasehold.socket leasehold.service || true
	fi
	;;
esac
