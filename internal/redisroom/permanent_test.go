package redisroom_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// What time does not heal is refused at once by both clients, to each of many callers.
func TestAcquire_WhatTimeDoesNotHealIsPermanent(t *testing.T) {
	live.Test(t)
	plain, secret, secure := redistest.Start(t), redistest.Start(t, "--requirepass", "right"), redistest.StartTLS(t, false)
	sentinel := redistest.StartSentinel(t)
	secureSentinel := redistest.StartSentinelTLS(t, secure)
	eachClient(t, func(t *testing.T, open func(string) store) {
		for what, row := range map[string]struct{ url, hint string }{
			"untrusted certificate":               {"rediss://" + secure.Addr() + "?", "?ca="},
			"untrusted certificate of a sentinel": {"rediss+sentinel://" + secureSentinel.Addr() + "?master=" + redistest.PrimaryName, "?ca="},
			"untrusted certificate of a node":     {"rediss+cluster://" + secure.Addr() + "?", "?ca="},
			"unknown name of the primary":         {"redis+sentinel://" + sentinel.Sentinel.Addr() + "?master=other", "no primary of that name"},
			"sentinel URL to a plain server":      {"redis+sentinel://" + plain.Addr() + "?master=" + redistest.PrimaryName, "not a sentinel"},
			"cluster URL to a plain server":       {"redis+cluster://" + plain.Addr() + "?", "cluster support disabled"},
			"plain URL to a sentinel":             {"redis://" + sentinel.Sentinel.Addr() + "?", "unknown command"},
			"unknown database":                    {"redis://" + plain.Addr() + "/99?", "databases"},
			"wrong password":                      {"redis://:wrong@" + secret.Addr() + "?", "WRONGPASS"},
		} {
			t.Run(what, func(t *testing.T) {
				d := open(row.url + "&timeout=5s")
				const callers = 16
				began := time.Now()
				errs := make(chan error, callers)
				for range callers {
					go func() {
						reply, err := d.Acquire(background, request("k", "a"))
						if err == nil {
							err = fmt.Errorf("granted, or queued: state %d", reply.State)
						}
						errs <- err
					}()
				}
				for range callers {
					err := <-errs
					if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), row.hint) {
						t.Errorf("%v, want ErrPermanent that says %q", err, row.hint)
					}
				}
				if took := time.Since(began); took > 2*time.Second {
					live.Late(t, "after %v", took)
				}
			})
		}
	})
}
