package s3driver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/leasehold-go/leasehold/driver"
)

// request is one request to the store, which is sent at most once.
type request struct {
	ctx    context.Context
	cancel context.CancelFunc
	bucket *bucket
	sent   bool // it was handed to the HTTP client
	status int  // of the answer, or 0
	header http.Header
}

func (b *bucket) request(ctx context.Context) *request {
	r := &request{bucket: b}
	r.ctx, r.cancel = context.WithTimeout(ctx, b.timeout)
	return r
}

// apply sets the options of the request. The client's own repetition of a write would hide its
// outcome: the second try finds the record that the first one has written. Checksums are left
// out, since many compatible stores refuse the SDK's defaults.
func (r *request) apply(o *s3.Options) {
	o.Retryer = aws.NopRetryer{}
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	o.Logger = logging.Nop{}
	o.APIOptions = append(o.APIOptions, smithyhttp.SetHeaderValue("Cache-Control", "no-cache"), func(stack *middleware.Stack) error {
		return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("leasehold", r.observe), middleware.After)
	})
}

// observe notes that the request is sent, and the header of the answer. Without an answer it closes
// the idle connections.
func (r *request) observe(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (
	out middleware.DeserializeOutput, metadata middleware.Metadata, err error,
) {
	r.sent = true
	r.bucket.signed.Store(true)
	out, metadata, err = next.HandleDeserialize(ctx, in)
	if answer, ok := out.RawResponse.(*smithyhttp.Response); ok && answer != nil {
		r.status, r.header = answer.StatusCode, answer.Header
	}
	if r.status == 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		r.bucket.hangUp() // the network that has lost one connection may have lost all
	}
	return out, metadata, err
}

// clock returns the store's clock, in steps.
func (r *request) clock() (time.Time, error) {
	date, err := r.date()
	return date.Truncate(step), err
}

// date returns the Date of the answer.
func (r *request) date() (time.Time, error) {
	if age := r.header.Get("Age"); age != "" && age != "0" {
		return time.Time{}, refusal("a cache gave an answer that is " + age + " seconds old: let no cache stand before the store")
	}
	date, err := http.ParseTime(r.header.Get("Date"))
	if err != nil {
		return time.Time{}, refusal("the store's answer has no Date, which locks need as a clock")
	}
	return date, nil
}

// code returns the store's name for an error, or "" if the store has not answered. An answer
// without a name, as from a gateway, has the name UnknownError.
func (r *request) code(err error) string {
	var api smithy.APIError
	if r.status == 0 || !errors.As(err, &api) {
		return ""
	}
	return api.ErrorCode()
}

// remedies has the codes of refusals that time does not heal, with a remedy. The store refuses
// such a request before it does anything.
var remedies = map[string]string{
	"NoSuchBucket":                 "there is no such bucket: create it, or correct its name, the region or the endpoint",
	"InvalidBucketName":            "correct the bucket's name",
	"AccessDenied":                 "allow s3:GetObject, s3:PutObject and s3:DeleteObject on the objects of the prefix, and s3:ListBucket on the bucket",
	"AllAccessDisabled":            "the bucket is disabled",
	"InvalidAccessKeyId":           "the store does not know the access key: correct the credentials",
	"InvalidToken":                 "correct the session token of the credentials",
	"SignatureDoesNotMatch":        "correct the secret key, or let no proxy change requests",
	"PermanentRedirect":            "the bucket is in another region: correct region",
	"AuthorizationHeaderMalformed": "the bucket is in another region: correct region",
	"NotImplemented":               "the store has no conditional writes: take another one",
	"MethodNotAllowed":             "the endpoint is not one of S3",
	"InvalidArgument":              "the store does not understand the request: take one with conditional writes",
	"InvalidRequest":               "the store does not understand the request: take one with conditional writes, and a bucket without object lock",
}

// passing has the codes of refusals that time heals, and that certainly had no effect.
var passing = map[string]bool{"ExpiredToken": true, "ExpiredTokenException": true, "RequestTimeTooSkewed": true, "RequestExpired": true}

// explain adds to an error a remedy, and whether it is definite.
func (r *request) explain(err error) error {
	var dial *net.OpError
	var untrusted *tls.CertificateVerificationError
	code := r.code(err)
	if r.status == http.StatusNotImplemented {
		code = "NotImplemented"
	}
	remedy, lasts := remedies[code]
	switch {
	case err == nil:
		return nil
	case lasts:
		if region := r.header.Get("X-Amz-Bucket-Region"); region != "" && r.status/100 == 3 {
			remedy += "=" + region
		}
		return fmt.Errorf("%w: bucket %q: %s (%s): %w", driver.ErrPermanent, r.bucket.name, remedy, code, err)
	case !r.sent && r.ctx.Err() == nil && !r.bucket.signed.Load():
		return fmt.Errorf("%w: there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the machine a role: %w",
			driver.ErrPermanent, err)
	case errors.As(err, &untrusted):
		return fmt.Errorf("%w: %w", driver.ErrPermanent, err)
	case passing[code], !r.sent, errors.As(err, &dial) && dial.Op == "dial":
		return unavailable(err)
	}
	return err
}

// outcome returns the result of a conditional write.
func (r *request) outcome(err error) (ok bool, _ error) {
	if err == nil {
		return true, nil
	}
	switch code := r.code(err); {
	case r.status == http.StatusPreconditionFailed, r.status == http.StatusConflict, code == "NoSuchKey":
		return false, nil
	}
	return false, r.explain(err)
}

// refusal returns the error of a store that is not fit for locks.
func refusal(what string) error { return fmt.Errorf("%w: %s", driver.ErrPermanent, what) }

// unavailable returns the error of a call that certainly had no effect.
func unavailable(err error) error {
	if err == nil || errors.Is(err, driver.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}
