package natsdriver

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leasehold-go/leasehold/driver"
)

func TestOpen_AWrongURLIsInvalidAndShowsNoPassword(t *testing.T) {
	for text, says := range map[string]string{
		"nats://u:secret@h/b?nonsense=1":            "nonsense",
		"nats://u:secret@h/b.c":                     "bucket",
		"nats://u:secret@h/b/c":                     "bucket",
		"nats://u:secret@h/b?timeout=1ms":           "timeout",
		"nats://u:secret@h/b?replicas=3":            "create=true",
		"nats://u:secret@h/?create=true&replicas=2": "replicas",
		"nats://u:secret@h/?create=yes":             "create",
		"nats://u:secret@h?ca=ca.pem":               "tls://",
		"tls://u:secret@h?ca=/nonexistent":          "nonexistent",
		"nats://u:secret@":                          "hosts",
		"nats://u:secret@h1,,h2":                    "percent-encode",
		"nats://u:se/secret@h":                      "percent-encode",
		"nats://u:se#secret@h":                      "percent-encode",
		"nats:u:secret@h":                           "has to follow",
		"http://u:secret@h":                         "scheme",
		"secret":                                    "scheme",
	} {
		_, err := Open(text)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(fmt.Sprint(err), says) || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: %v; want %q", text, err, says)
		}
	}
	for _, text := range []string{
		"nats://h", "nats://u:p@h1:1,h2,[::1]:4222/b_-2?create=true&replicas=5&timeout=1m", "tls://token@h/?skip-verify=true&creds=/x",
	} {
		if d, err := Open(text); err != nil {
			t.Errorf("%s: %v", text, err)
		} else {
			noError(t, d.Close())
		}
	}
	if _, err := New(nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("%v", err)
	}
	if _, err := New(new(nats.Conn), WithBucket("a b")); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

// The error of a wrong setting comes at once, and names the remedy.
func TestAcquire_WhatTimeDoesNotHealIsSaidAtOnce(t *testing.T) {
	withUsers := start(t, `authorization { users: [
		{ user: boss, password: "secret,1" },
		{ user: reader, password: "secret,1", permissions: {
			publish: ["$JS.API.STREAM.INFO.>", "$JS.API.STREAM.MSG.GET.>"], subscribe: "_INBOX.>" } },
		{ user: least, password: "secret,1", permissions: {
			publish: ["$KV.leasehold.>", "$JS.API.STREAM.INFO.KV_leasehold", "$JS.API.STREAM.MSG.GET.KV_leasehold", "leasehold.leasehold.>",
				"$JS.API.STREAM.CREATE.KV_leasehold", "$JS.API.INFO"],
			subscribe: ["leasehold.leasehold.>", "_INBOX.>"] } },
		{ user: blind, password: "secret,1", permissions: { publish: ["$KV.>"], subscribe: ["_INBOX.>"] } },
		{ user: deaf, password: "secret,1", permissions: { publish: ">", subscribe: ["_INBOX.>"] } },
		{ user: unanswered, password: "secret,1", permissions: { publish: ">", subscribe: ["leasehold.>"] } },
	] }`)
	as := func(user string) string {
		return strings.Replace(withUsers.url(), "nats://", "nats://"+user+":secret,1@", 1) + "/"
	}
	least := openURL(t, as("least")+"?create=true")
	sub, err := least.Watch(func(driver.Hint) {})
	noError(t, err)
	defer sub.Close()
	warm(t, least)
	eventually(t, func() bool { return sub.Address() != "" })
	deaf := openURL(t, as("deaf"))
	deaf.table.listen(t.Context(), new(ear), func(string) { t.Error("a subscription that is refused has an address") })
	unanswered := openURL(t, as("unanswered")+"?timeout=3s")
	if _, err := unanswered.Acquire(t.Context(), mutex("k", "a")); !strings.Contains(fmt.Sprint(err), `Subscription to "_INBOX.`) {
		t.Error(err)
	}
	cert, key := certificate(t)
	secured := start(t, fmt.Sprintf("tls { cert_file: %q, key_file: %q }", cert, key))
	plain, _ := one()
	js, err := jetstream.New(connect(t, plain))
	noError(t, err)
	for _, cfg := range []jetstream.KeyValueConfig{
		{Bucket: "plain"}, {Bucket: "origin", LimitMarkerTTL: time.Hour}, {Bucket: "mirror", Mirror: &jetstream.StreamSource{Name: "origin"}},
		{Bucket: "revisions", LimitMarkerTTL: time.Hour, History: 5},
	} {
		_, err := js.CreateKeyValue(t.Context(), cfg)
		noError(t, err)
	}
	for _, row := range []struct{ url, says string }{
		{plain + "/none", "create=true"},
		{plain + "/plain", "--marker-ttl"},
		{plain + "/mirror", "origin"},
		{plain + "/revisions", "--max-msgs-per-subject=1"},
		{plain + "/?create=true&replicas=3", "replicas"},
		{as("wrong"), "Authorization"},
		{as("reader"), "allow it to publish to $KV.leasehold.k"},
		{as("blind"), "allow it to publish to $JS.API.STREAM."},
		{as("boss") + "?creds=/nonexistent", "nonexistent"},
		{secured.url(), "certificate"},
		{strings.Replace(plain, "nats://", "tls://", 1), "secure"},
	} {
		d := openURL(t, row.url)
		begin := time.Now()
		_, err := d.Acquire(t.Context(), mutex("k", "a"))
		text := strings.ToLower(fmt.Sprint(err))
		if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(text, strings.ToLower(row.says)) || strings.Contains(text, "secret") {
			t.Errorf("%s: %v; want %q", row.url, err, row.says)
		}
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("%s: it took %v", row.url, took) // the timeout is 20 s
		}
	}
	d := openURL(t, "tls://"+secured.addr+"?create=true&"+url.Values{"ca": {cert}, "server_name": {"example.com"}}.Encode())
	acquire(t, d, mutex("k", "a"), driver.Granted)
}

// certificate returns the files of a certificate for example.com, and of its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	pair := s.TLS.Certificates[0]
	secret, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	noError(t, err)
	cert, key = filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	noError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), 0o600))
	noError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	return cert, key
}

func TestAcquire_AServerWithoutJetStreamIsSaid(t *testing.T) {
	s := start(t)
	s.Kill()
	withoutJetStream(t, s)
	s.run()
	d := openURL(t, s.url())
	var err error
	eventually(t, func() bool {
		_, err = d.Acquire(t.Context(), mutex("k", "a"))
		return err != nil && strings.Contains(err.Error(), "JetStream")
	})
	if !errors.Is(err, driver.ErrUnavailable) {
		t.Error(err)
	}
}

func TestKey_IsEncodedAndDecoded(t *testing.T) {
	for key, want := range map[string]string{
		"orders/42": "orders./42", "/": "=2F", "//x/": "=2F./x./", "a//b": "a././b",
		"a.b*>~ +%": "a=2Eb=2A=3E=7E=20=2B=25", "a/.b": "a./=2Eb", "x.b*>": "x=2Eb=2A=3E", "=": "=3D",
		"é": "=C3=A9", "\x01mark": "=01mark",
	} {
		got := encode(key)
		if back, ok := decode(got); got != want || !ok || back != key {
			t.Errorf("%q: %q, %q, %t", key, got, back, ok)
		}
	}
	for _, text := range []string{"=4", "=ZZ", "a~b", "=3D=", "a.b", "./a", "=61", "=2f"} {
		if key, ok := decode(text); ok {
			t.Errorf("%q is %q", text, key)
		}
	}
	if got := encode(strings.Repeat("\xff", 540)); len(got) != 1620 {
		t.Errorf("%d bytes", len(got))
	}
}

// Records disappear from the bucket by themselves, and so do the marks of removed records.
func TestBucket_EachMessageHasAnEnd(t *testing.T) {
	d := newStore(t)
	acquire(t, d, mutex("held", "a"), driver.Granted)
	for key, most := range map[string]time.Duration{"held": 2 * time.Hour, "removed": marked} {
		if key == "removed" {
			noError(t, d.table.Update(t.Context(), key, func([]byte, time.Time) ([]byte, error) {
				return append([]byte{1, 0, 0, 0, 0, 0, 0, 0, 1}, rand.Text()...), nil
			}))
			noError(t, d.table.Update(t.Context(), key, func([]byte, time.Time) ([]byte, error) { return nil, nil }))
		}
		var answer struct {
			failure
			Message struct {
				Hdrs, Data []byte
			}
		}
		noError(t, d.table.call(t.Context(), "MSG.GET", map[string]any{"last_by_subj": d.table.subject(encode(key))}, &answer))
		head, err := nats.DecodeHeadersMsg(answer.Message.Hdrs)
		noError(t, err)
		ttl, err := time.ParseDuration(head.Get("Nats-TTL") + "s")
		if err != nil || ttl < most/2 || ttl > most {
			t.Errorf("%s: %v, %v", key, head, err)
		}
		// The server removes the message and adds no mark, which might replace another record.
		short := &nats.Msg{Subject: d.table.subject("short"), Header: head, Data: answer.Message.Data}
		short.Header.Set("Nats-TTL", "1")
		short.Header.Del(jetstream.ExpectedLastSubjSeqHeader)
		_, err = d.table.ask(t.Context(), short)
		noError(t, err)
		first, err := d.table.get(t.Context(), map[string]any{"last_by_subj": short.Subject})
		noError(t, err)
		eventually(t, func() bool {
			m, err := d.table.get(t.Context(), map[string]any{"last_by_subj": short.Subject})
			if err == nil && m.Seq > first.Seq {
				t.Fatalf("%s: message %d follows %d", key, m.Seq, first.Seq)
			}
			return err == nil && m.Seq == 0
		})
	}
}

func TestList_APageIsBoundedThoughItsRecordsHaveOtherPrefixes(t *testing.T) {
	d := newStore(t)
	for i := range pageSize {
		acquire(t, d, mutex(fmt.Sprint("other", i), "a"), driver.Granted)
	}
	acquire(t, d, mutex("last", "a"), driver.Granted)
	keys, next, err := d.List(t.Context(), "las", "")
	if err != nil || len(keys) > 0 || next == "" {
		t.Fatalf("%q, %q, %v", keys, next, err)
	}
	if keys, next, err = d.List(t.Context(), "las", next); err != nil || !slices.Equal(keys, []string{"last"}) || next != "" {
		t.Errorf("%q, %q, %v", keys, next, err)
	}
}
