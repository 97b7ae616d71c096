#!/bin/sh
# Runs a command while holding a lock of `leasehold serve`, with curl alone.
#
#	LEASEHOLD_URL=http://127.0.0.1:8080 ./lock.sh NAME COMMAND [ARG…]
#
# The command sees its fencing token as LEASEHOLD_TOKEN. The exit code is its
# own, or 79 if the lock was lost: the command was killed before that. Signals
# are passed on to it, as TERM. Where a bearer token is needed, LEASEHOLD_AUTH has it.
set -eu

base=${LEASEHOLD_URL:-http://127.0.0.1:8080}
[ $# -ge 2 ] || { echo "usage: $0 NAME COMMAND [ARG...]" >&2; exit 64; }

# The name in JSON, as answers have it. It is in the body: a proxy may change a path.
key=\"key\":\"$(printf %s "$1" | sed 's/\\/\\\\/g; s/"/\\"/g; s/&/\\u0026/g; s/</\\u003c/g; s/>/\\u003e/g')\"
shift
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# The lease id makes every request repeatable: one that was not answered is
# sent again, and has the effect of one.
id=sh-$$-$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')
problems=https://github.com/leasehold-go/leasehold/blob/main/docs/http.md#
owner=$(uname -n):$$
about="{$key,\"leaseId\":\"$id\"" # how each body begins

# ask SECONDS METHOD PATH BODY sends a request, prints the status, and leaves
# the answer in $tmp/answer. An answer that is not the service's, but a proxy's,
# says nothing: its status is printed as 000, and $tmp/why has the cause. The bearer token is passed on
# standard input, where other users of the machine do not see it.
ask() {
	status=$(send "$@")
	grep -q "\"leaseId\":\"$id\"\|\"type\":\"$problems" "$tmp/answer" || {
		[ -s "$tmp/why" ] || echo "status $status there is not of a leasehold service" >"$tmp/why"
		status=000
	}
	if grep -q '"key":' "$tmp/answer" && ! grep -qF "$key" "$tmp/answer"; then
		echo "it answers for another lock: a proxy changes the request" >"$tmp/why"
		echo elsewhere >"$tmp/curl"
		status=000
	fi
	echo "$status"
}

send() {
	: >"$tmp/answer"
	rm -f "$tmp/curl"
	printf '%s\n' "${LEASEHOLD_AUTH:+header = \"Authorization: Bearer $LEASEHOLD_AUTH\"}" |
		curl --silent --show-error --config - --max-time "$1" --request "$2" --output "$tmp/answer" \
			--write-out '%{http_code}' --header 'Content-Type: application/json' \
			--data "$4" "$base/v1/$3" 2>"$tmp/why" || echo $? >"$tmp/curl"
}

refused() {
	cat "$tmp/answer" >&2
	exit 69
}

lost() {
	echo "lost the lock before the command began" >&2
	exit 79
}

# unavailable ends a wait for a service that did not answer for 30 s, or cannot be used:
# the URL is wrong, or one side does not accept the certificate of the other one.
unavailable() {
	case $(cat "$tmp/curl" 2>/dev/null) in
	elsewhere | 1 | 3 | 35 | 51 | 58 | 59 | 60 | 77 | 83 | 90) ;;
	*) [ $(($(date +%s) - heard)) -gt 30 ] || return 0 ;;
	esac
	echo "$base does not answer: $(head -n 1 "$tmp/why")" >&2
	ask 4 POST leases:release "$about}" >/dev/null # a request may still be on its way
	exit 69
}

# take waits for the lock, and keeps its place in the queue while it waits.
take() {
	heard=$(date +%s)
	while :; do
		status=$(ask 40 POST locks "$about,\"ttlMs\":30000,\"waitMs\":30000,\"owner\":\"$owner\"}")
		[ "$status" = 000 ] || heard=$(date +%s)
		case $status in
		200 | 201) return ;;
		202) ;; # still queued: ask again
		410) lost ;; # broken before the answer
		501) refused ;;
		000) unavailable; sleep 1 ;;
		429 | 5??) sleep 1 ;; # not now
		*) refused ;;
		esac
	done
}

# renew counts no clock: a renewal takes 4 s at most, and there are three tries
# 1 s apart, so that it is known 14 s after it was due, at most 24 s after the
# last that succeeded was sent, whether the lease of 30 s goes on.
renew() {
	for try in 1 2 3; do
		[ "$try" = 1 ] || sleep 1
		case $(ask 4 PUT leases "$about,\"ttlMs\":30000}") in
		200) return 0 ;;
		410) return 1 ;; # lost: there is nothing to be tried again
		esac
	done
	return 1
}

take
renew || lost # the wait may have taken of the lease
token=$(sed -n 's/.*"token":\([0-9]*\).*/\1/p' "$tmp/answer")

# A signal is passed on. It does not end this shell before the command, which would go
# on without the lock.
child= ended=
trap 'ended=1; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM INT HUP
exec 3<&0 # what runs in the background has no input otherwise
LEASEHOLD_TOKEN=$token "$@" <&3 3<&- &
child=$!
[ -z "$ended" ] || kill -TERM "$child" 2>/dev/null # it came in between
(
	trap - EXIT TERM INT HUP
	while sleep 10 & wait $!; do
		renew || {
			: >"$tmp/lost"
			kill -KILL "$child" 2>/dev/null
			exit
		}
	done
) >/dev/null 2>&1 &
keeper=$!

code=0
while wait "$child" || code=$?; kill -0 "$child" 2>/dev/null; do code=0; done # a signal ends a wait, not the child
kill "$keeper" 2>/dev/null || true
if [ -e "$tmp/lost" ]; then
	echo "lost the lock; the command was killed" >&2
	exit 79
fi
for try in 1 2 3; do
	case $(ask 4 POST leases:release "$about}") in 2*) exit "$code" ;; 410) exit 79 ;; esac
done
exit "$code" # the lease ends by itself
