package redisroom_test

import (
	"net"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// fill takes all free connections of a server but some, and returns a function that takes the
// remaining ones, too.
func fill(t *testing.T, s *redistest.Server, free int) func() {
	t.Helper()
	var held []net.Conn
	// refused takes another connection, and reports whether the server sent it away.
	refused := func() bool {
		nc, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		if _, err := nc.Write([]byte("PING\r\n")); err != nil {
			return true
		}
		answer := make([]byte, 1)
		_ = nc.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := nc.Read(answer); err != nil || answer[0] != '+' {
			return true
		}
		held = append(held, nc)
		return false
	}
	all := func() {
		for !refused() {
		}
	}
	all()
	for _, nc := range held[:free] {
		_ = nc.Close()
	}
	return all
}

// connections returns the number of connections of a server, including its own.
func connections(t *testing.T, s *redistest.Server) string {
	return s.Info(t, "clients")["connected_clients"]
}

// TestRenew_HR_G2_LeaseIsRenewedOnAFullServer: P3 promises that a healthy store loses no lease.
func TestRenew_HR_G2_LeaseIsRenewedOnAFullServer(t *testing.T) {
	for name, free := range map[string]int{"connected with the grant": 2, "by the connection of the grant": 1} {
		t.Run(name, func(t *testing.T) {
			eachClient(t, func(t *testing.T, open func(string) store) {
				s := redistest.Start(t, "--maxclients", "20")
				connections(t, s) // so that it has its connection
				rest := fill(t, s, free)
				d := open(s.URL())
				var reply driver.Reply
				eventually(t, "granted", func() bool {
					var err error
					reply, err = d.Acquire(background, request("k", "a"))
					return err == nil
				})
				eventually(t, "full", func() bool { return connections(t, s) == "20" })
				rest()
				for range 5 {
					replies, errs := renewAll(d, []driver.Ref{{Key: "k", ID: "a", TTL: 10 * time.Second, Uncontended: reply.Uncontended}})
					if errs[0] != nil || replies[0].State != driver.Granted {
						t.Errorf("renewal: %+v, %v", replies[0], errs[0])
					}
				}
			})
		})
	}
}
