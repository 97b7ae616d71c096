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
	noStream        = jetstream.JSErrCodeStreamNotFound
	noMessage       = jetstream.JSErrCodeMessageNotFound
	otherRevision   = jetstream.JSErrCodeStreamWrongLastSequence
	changesNow      = jetstream.JSErrCodeStreamWrongLastSequenceConstant // as otherRevision: a change of the key is under way
	noTTL           = 10166
	tooLarge        = 10054
	noResources     = 10023
	accountFull     = 10002
	otherConfig     = jetstream.JSErrCodeStreamNameInUse
	notEnabled      = jetstream.JSErrCodeJetStreamNotEnabled
	notForAccount   = jetstream.JSErrCodeJetStreamNotEnabledForAccount
	sealed          = 10109
	notEnoughPeers  = 10005
	notClustered    = 10074
	storageExceeded = 10047
)

// refusals are answers to a write that a server gives before it stores or proposes the message.
var refusals = []jetstream.ErrorCode{noTTL, tooLarge, noResources, accountFull, sealed, notEnabled, notForAccount}

// hints maps a code to advice. All but the full ones need a change of settings.
var hints = map[jetstream.ErrorCode]string{
	notEnabled:      "enable JetStream on the servers",
	notForAccount:   "enable JetStream for the account of the user",
	noTTL:           errNoTTL.Error(),
	tooLarge:        "the lock has too many waiters, or too many labels: raise the bucket's maximum value size",
	sealed:          "the bucket is sealed; name another one",
	notEnoughPeers:  "fewer servers are there than replicas= says",
	notClustered:    "a single server keeps one replica: say create=true without replicas=",
	noResources:     "the servers' storage for JetStream is full",
	accountFull:     "the account's storage for JetStream is full",
	storageExceeded: "the servers' storage for JetStream is full",
}

// heal are the codes whose cause may go away. A record that is too large may have been written with the calls of
// others, such as a release, which are then repeated.
var heal = []jetstream.ErrorCode{tooLarge, notEnoughPeers, noResources, accountFull, storageExceeded}

// errNoTTL is the reason of a bucket of an old server, or with other settings.
var errNoTTL = errors.New("the bucket has no message TTLs, so its records would stay for ever: create another one by create=true, " +
	"or by `nats kv add NAME --marker-ttl=1h`, on servers of version 2.11 or later")

// explain adds advice to an error.
func explain(err error) error {
	var told *jetstream.APIError
	if errors.As(err, &told) && hints[told.ErrorCode] != "" {
		return fmt.Errorf("%w (%s)", err, hints[told.ErrorCode])
	}
	return err
}

// lasts reports whether time does not heal the cause of an error.
func lasts(err error) bool {
	var told *jetstream.APIError
	if errors.As(err, &told) {
		return hints[told.ErrorCode] != "" && !slices.Contains(heal, told.ErrorCode)
	}
	for _, refusal := range []error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired, nats.ErrSecureConnRequired,
		nats.ErrSecureConnWanted, nats.ErrHeadersNotSupported, nats.ErrPermissionViolation, fs.ErrNotExist, fs.ErrPermission,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return errors.As(err, new(*tls.CertificateVerificationError))
}

// unavailable returns the error of a call that certainly had no effect.
func unavailable(err error) error {
	switch {
	case err == nil, errors.Is(err, driver.ErrUnavailable):
		return err
	case lasts(err):
		return permanent(err)
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

func permanent(err error) error { return fmt.Errorf("%w: %w", driver.ErrPermanent, err) }
