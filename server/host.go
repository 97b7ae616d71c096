package server

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/leasehold-go/leasehold/driver"
)

// WithAllowedHosts adds names under which a service without authentication may be asked.
// Otherwise it answers requests by TCP only if their Host is localhost or an IP address: a
// page of another site may make its own name resolve to the service (DNS rebinding), and
// the browser then lets the page read the answers. Ports and case do not matter. With
// an authenticator every Host is answered. Default: none.
func WithAllowedHosts(names ...string) Option {
	return func(c *config) error {
		for _, name := range names {
			host := hostName(name)
			if host == "" || strings.ContainsAny(name, "/@*, ") {
				return fmt.Errorf("allowed host %q is not the name of a host: %w", name, driver.ErrInvalid)
			}
			c.hosts = append(c.hosts, host)
		}
		return nil
	}
}

// isForeignHost reports whether a request may come from a page under a name that was rebound.
// An IP address cannot be rebound, and a browser connects neither by a socket of the file
// system nor without a Host.
func (s *Server) isForeignHost(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if s.cfg.auth != nil || r.Host == "" || !ok || local.Network() != "tcp" && local.Network() != "udp" {
		return false
	}
	host := hostName(r.Host)
	_, err := netip.ParseAddr(host)
	return err != nil && host != "localhost" && !slices.Contains(s.cfg.hosts, host)
}

// hostName returns the host of a Host header in lower case, without port, brackets and the
// dot of the root.
func hostName(header string) string {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(header, "["), "]")
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}
