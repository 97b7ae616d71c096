package oneline

import (
	"context"
	"errors"
	"io"
	"testing"
)

func TestJoin_IsOneLineThatMatchesAll(t *testing.T) {
	err := Join(nil, io.EOF, nil, Join(context.Canceled, io.ErrClosedPipe))
	if got, want := err.Error(), "EOF; context canceled; io: read/write on closed pipe"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, want := range []error{io.EOF, context.Canceled, io.ErrClosedPipe} {
		if !errors.Is(err, want) {
			t.Errorf("%v does not match %v", err, want)
		}
	}
	if err := Join(nil, nil); err != nil {
		t.Error(err)
	}
}
