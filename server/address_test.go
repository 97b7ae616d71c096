package server_test

import (
	"strings"
	"testing"
)

// An address is where the store sends messages: with Redis, a channel.
func TestAddress_OnlyThoseOfEventStreamsAreTaken(t *testing.T) {
	towns(t, func(t *town) {
		t.take("k", "holder")
		var own struct{ Address string }
		for i := range 2 { // a service with an address of its own accepts addresses of the other service
			own.Address = ""
			tuned := tune(t.T, t.url(i, "/v1/events"))
			for own.Address == "" {
				tuned.hear("ready", &own)
			}
		}
		lock := t.url(0, "/v1/locks/k")
		for _, address := range []string{"chat", "__keyspace@0__:k", own.Address + "x", "x" + own.Address, strings.ToLower(own.Address) + " "} {
			for what, status := range map[string]int{
				"POST": first(ask(t.T, "POST", lock, `{"leaseId":"a","ticketMs":1000,"notify":"`+address+`"}`)),
				"PUT":  first(ask(t.T, "PUT", lock+"/leases/holder", `{"notify":"`+address+`"}`)),
			} {
				if status != 400 {
					t.Errorf("%s with %q: %d", what, address, status)
				}
			}
		}
		if status, text := ask(t.T, "POST", lock, `{"leaseId":"a","ticketMs":1000,"notify":"`+own.Address+`"}`); status != 202 {
			t.Errorf("its own: %d %s", status, text)
		}
	})
}

func first(status int, _ string) int { return status }
