#!/bin/sh
# Makes the user of the service, and restarts a service that an upgrade replaced.
# dpkg calls it with "configure" and, at an upgrade, the old version; rpm with the
# number of installed versions, 1 or more.
set -e

if ! getent group leasehold >/dev/null; then
	groupadd --system leasehold
fi
if ! getent passwd leasehold >/dev/null; then
	useradd --system --gid leasehold --home-dir /var/lib/leasehold --no-create-home \
		--shell /usr/sbin/nologin --comment 'Leasehold service' leasehold
fi
# It may hold the store's password. An administrator may have removed it, for good.
if [ -e /etc/default/leasehold ]; then
	chgrp leasehold /etc/default/leasehold
fi

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
	systemctl try-restart leasehold.service || true
fi
