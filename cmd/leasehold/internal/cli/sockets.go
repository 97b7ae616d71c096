package cli

import (
	"fmt"
	"log/slog"
	"net"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/leasehold-go/leasehold/server"
)

// activated returns the sockets on which systemd already listens for this process
// ($LISTEN_FDS), or an empty slice if systemd passed no sockets. It removes the variables of
// systemd, so that a command of the service does not use the sockets.
func (f *serveFlags) activated(listenGiven bool) ([]net.Listener, error) {
	found, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("serve: sockets of systemd: %w", err)
	}
	for i, l := range found {
		if l == nil {
			closeAll(found)
			return nil, usage("socket %d of the unit is not a listening stream socket; it needs ListenStream= and Accept=no", i+1)
		}
	}
	if len(found) > 0 && listenGiven {
		closeAll(found)
		return nil, usage("--listen %s is given besides %d sockets of systemd; the socket unit sets the addresses", f.listen, len(found))
	}
	return found, nil
}

// exposed returns the addresses that other machines can reach: among the sockets, or, if
// there are no sockets, the address of --listen.
func (f *serveFlags) exposed(sockets []net.Listener) (found []string) {
	if len(sockets) == 0 && !loopback(f.listen) {
		return []string{"--listen " + f.listen}
	}
	for _, l := range sockets {
		if a := l.Addr(); a.Network() != "unix" && !loopback(a.String()) {
			found = append(found, "the socket "+a.String())
		}
	}
	return found
}

func closeAll(sockets []net.Listener) {
	for _, l := range sockets {
		if l != nil {
			_ = l.Close() // the service has ended, or has not begun
		}
	}
}

// serveAll serves all sockets until the service ends, or one of them fails.
func serveAll(s *server.Server, sockets []net.Listener, all *files) error {
	ended := make(chan error, len(sockets))
	for _, l := range sockets {
		go func() { ended <- s.Serve(l, all.config()) }()
	}
	return <-ended
}

// urlOf returns the URL of a socket. For a Unix socket it returns the path.
func urlOf(scheme string, a net.Addr) string {
	if a.Network() == "unix" {
		return "unix:" + a.String()
	}
	return scheme + "://" + a.String()
}

// notify reports a change of state to systemd, if $NOTIFY_SOCKET is set.
func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("systemd was not notified", "state", state, "error", err)
	}
}
