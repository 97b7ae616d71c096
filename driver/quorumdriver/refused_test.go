package quorumdriver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Nodes refuse a renewal for different reasons. In every order of their answers, the result
// is a loss if a majority does not have the lease, and otherwise a refusal, which leaves
// the lease unchanged.
func TestRenew_P3_WhatIsToldIsWhatWasDecided(t *testing.T) {
	errGone := errors.New("gone") // the node has forgotten the lease
	invalid, other, unsupported := driver.ErrInvalid, driver.ErrMismatch, errors.ErrUnsupported
	for _, row := range []struct {
		nodes []error // by node, nil for a grant
		want  error   // nil for Gone
		lost  bool
	}{
		{[]error{invalid, other, other, other, nil}, other, true},
		{[]error{invalid, errGone, other, other, nil}, other, true},
		{[]error{unsupported, errGone, errGone, other, nil}, other, true},
		{[]error{invalid, errGone, errGone, errGone, nil}, nil, true},
		{[]error{invalid, other, other, nil, nil}, invalid, false},
		{[]error{unsupported, other, errGone, nil, nil}, unsupported, false},
		{[]error{other, invalid, nil}, invalid, false},
		{[]error{errGone, invalid, nil}, invalid, false},
		{[]error{invalid, invalid, nil}, invalid, false},
		{[]error{other, errGone, nil}, other, true},
	} {
		for first := range row.nodes {
			t.Run(fmt.Sprintf("%v, node %d first", row.nodes, first+1), func(t *testing.T) {
				n := len(row.nodes)
				inBubble(t, n, func(t *testing.T, all []*server, a asker) {
					token := a.begun().acquire("a", driver.Granted, visit("v")).Token
					synctest.Wait()
					for i, answer := range row.nodes {
						if errors.Is(answer, errGone) {
							all[i].free(t, "a")
							answer = nil
						}
						all[i].intercept(func(_ context.Context, verb intercept.Verb) error {
							if verb != intercept.Renew {
								return nil
							}
							time.Sleep(time.Duration((i-first+n)%n) * time.Millisecond)
							return answer
						})
					}
					reply, err := a.renew("a")
					if !errors.Is(err, row.want) || timing.Refused(err) == row.lost || err == nil && reply.State != driver.Gone {
						t.Errorf("%+v, %v; want %v", reply, err, row.want)
					}
					time.Sleep(time.Second)
					synctest.Wait()
					if left := len(all[n-1].inside(t)); (left == 0) != row.lost {
						t.Errorf("%d left where it was renewed", left)
					}
					if row.lost {
						return
					}
					for i, err := range row.nodes {
						if all[i].intercept(nil); !errors.Is(err, errGone) {
							wantInside(t, all[i:i+1], "a")
						}
					}
					if got := a.renewed("a", driver.Granted).Token; got != token {
						t.Errorf("its token is %d, and was %d", got, token)
					}
				})
			})
		}
	}
}
