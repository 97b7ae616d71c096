package redisurl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// login authenticates new connections with a password that is in a file. The file is
// read for each connection, since passwords are rotated; the client libraries take one
// password of sentinels once. A connection stays authenticated when its password is
// replaced.
type login struct {
	user, path string
	read       func() (string, error)
	accepted   atomic.Bool // a server has accepted a password of the file
}

// authenticate sends AUTH and waits for the answer, until ctx ends. A password that is
// refused is an error that time does not heal, unless an earlier one was accepted: then the
// server may be ahead of the file.
func (l *login) authenticate(ctx context.Context, nc net.Conn) error {
	password, err := l.read()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err = fmt.Fprintf(nc, "*3\r\n$4\r\nAUTH\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(l.user), l.user, len(password), password)
	if err != nil {
		return err
	}
	answer, err := line(nc)
	switch refusal, refused := strings.CutPrefix(answer, "-"); {
	case err != nil:
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return err
	case answer == "+OK":
		l.accepted.Store(true)
		if !stop() {
			return context.Cause(ctx)
		}
		return nil
	case refused && l.accepted.Load():
		return fmt.Errorf("%s (the password in %s, which is read again for each connection)", refusal, l.path)
	case refused:
		return redisroom.ReplyError(refusal)
	}
	return errors.New("invalid reply to AUTH")
}

// line reads one line, and no byte after it.
func line(r io.Reader) (string, error) {
	var text []byte
	for b := make([]byte, 1); len(text) < 1<<10; text = append(text, b[0]) {
		if _, err := io.ReadFull(r, b); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			break
		}
	}
	return strings.TrimSuffix(string(text), "\r"), nil
}
