package natsdriver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leasehold-go/leasehold/driver"
)

// Codes of JetStream.
const (
	noStream      = jetstream.JSErrCodeStreamNotFound
	noMessage     = jetstream.JSErrCodeMessageNotFound
	otherRevision = jetstream.JSErrCodeStreamWrongLastSequence
	changesNow    = jetstream.JSErrCodeStreamWrongLastSequenceConstant // as otherRevision: a change of the key is under way
	otherConfig   = jetstream.JSErrCodeStreamNameInUse
	noTTL         = 10166
)

// settings are refusals that time does not heal, with advice. A write is refused before it is stored.
var settings = map[jetstream.ErrorCode]string{
	jetstream.JSErrCodeJetStreamNotEnabled:           "enable JetStream on the servers",
	jetstream.JSErrCodeJetStreamNotEnabledForAccount: "enable JetStream for the account of the user",
	noTTL: "the bucket has no message TTLs, so its records would stay for ever: create another one by create=true, " +
		"or by `nats kv add NAME --marker-ttl=1h`, on servers of version 2.11 or later",
	10074: "a single server keeps one replica: say create=true without replicas=",
	10109: "the bucket is sealed: name another one",
}

// limits are refusals of a write before it is stored. Time may heal them: a record that is too large
// may be the work of several calls, such as a release, which are then repeated alone.
var limits = map[jetstream.ErrorCode]string{
	10002: "the account's storage for JetStream is full",
	10023: "the servers' storage for JetStream is full",
	10054: "the lock has too many waiters, or too many labels: raise the bucket's maximum value size",
}

// code returns the code of an error of JetStream, or 0.
func code(err error) jetstream.ErrorCode {
	var told *jetstream.APIError
	if errors.As(err, &told) {
		return told.ErrorCode
	}
	return 0
}

// refused reports whether JetStream has refused a request without an effect.
func refused(err error) bool { return settings[code(err)]+limits[code(err)] != "" }

// refusals are errors of a connection that time does not heal.
var refusals = []error{
	nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired, nats.ErrSecureConnRequired,
	nats.ErrSecureConnWanted, nats.ErrHeadersNotSupported, jetstream.ErrLimitMarkerTTLNotSupported, fs.ErrNotExist, fs.ErrPermission,
}

// unavailable returns the error of a call that certainly had no effect.
func unavailable(err error) error {
	switch {
	case err == nil, errors.Is(err, driver.ErrUnavailable):
		return err
	case settings[code(err)] != "", errors.As(err, new(*tls.CertificateVerificationError)),
		slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) }):
		return permanent(err)
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

func permanent(err error) error { return fmt.Errorf("%w: %w", driver.ErrPermanent, err) }
