#!/bin/sh
# The user and /var/lib/leasehold stay: the directory may hold locks. "dpkg --purge"
# removes the directory of the service; the user stays even then, because files of its
# own would fall to the next user who gets the number.
set -e

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
if [ "$1" = purge ]; then
	rm -rf /var/lib/leasehold
fi
