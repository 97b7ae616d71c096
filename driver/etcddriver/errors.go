package etcddriver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold-go/leasehold/driver"
)

// refusals are errors of requests that certainly had no effect, except for the first. All other errors,
// such as a lost leader or a timeout, leave the outcome unknown.
var refusals = []struct {
	err   error
	lasts bool   // until a setting is changed
	means string // and the remedy
}{
	{rpctypes.ErrNoSpace, true, "etcd has used up its quota: let etcdctl compact, then defrag, then alarm disarm"},
	{rpctypes.ErrCorrupt, true, "etcd has found that its data is corrupt: replace the member that the alarm names"},
	{rpctypes.ErrRequestTooLarge, false, "the record of this lock, with all its waiters and labels, is larger than --max-request-bytes"},
	{rpctypes.ErrTooManyRequests, false, "etcd has too many requests under way"},
	{rpctypes.ErrNoLeader, false, "the members have no leader: fewer than half of them reach each other"},
	{rpctypes.ErrPermissionDenied, true, "the user needs a role with readwrite on the prefix of the store"},
	{rpctypes.ErrAuthFailed, true, "wrong user name or password"},
	{rpctypes.ErrUserEmpty, true, "etcd asks for a user name and a password"},
	{rpctypes.ErrUserNotFound, true, "wrong user name or password"},
	{rpctypes.ErrAuthNotEnabled, true, "etcd has authentication switched off: leave out user name and password, or run etcdctl auth enable"},
	{rpctypes.ErrInvalidAuthToken, false, "the session with etcd has ended, and the next call begins another"},
	{rpctypes.ErrAuthOldRevision, false, "users or roles have changed, and the next call begins another session"},
	{rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner), true, "this member is a learner, which serves no locks: name voting members"},
}

// find returns the index of the refusal in err, or -1.
func find(err error) int {
	text := rpctypes.ErrorDesc(err)
	for i, r := range refusals {
		if errors.Is(err, r.err) || text == rpctypes.ErrorDesc(r.err) {
			return i
		}
	}
	return -1
}

// full reports whether the error is that of a full store, which may have made the write.
func full(err error) bool { return find(err) == 0 }

// definite reports whether a write with this error certainly had no effect.
func definite(err error) bool { return find(err) > 0 }

// explain adds the remedy to an error.
func explain(err error) error {
	if i := find(err); err != nil && i >= 0 {
		return fmt.Errorf("%s: %w", refusals[i].means, err)
	}
	return err
}

// unavailable returns the error of a call that certainly had no effect.
func unavailable(err error) error {
	i := find(err)
	switch {
	case err == nil, errors.Is(err, driver.ErrMismatch):
		return err
	case i >= 0 && refusals[i].lasts, untrusted(err):
		return fmt.Errorf("%w: %w", driver.ErrPermanent, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

// untrusted reports whether a connection failed by its certificates, or by TLS on one side only.
// The client has only the text of such errors.
func untrusted(err error) bool {
	if s, ok := status.FromError(err); ok && s.Code() == codes.Unimplemented {
		return true
	}
	text := err.Error()
	return errors.As(err, new(*tls.CertificateVerificationError)) || strings.Contains(text, "authentication handshake failed: tls:") ||
		!errors.Is(err, context.Canceled) && strings.Contains(text, "x509: ")
}
