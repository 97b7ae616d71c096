package proc

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMessages_ArriveAsTheyWereSent(t *testing.T) {
	var wire bytes.Buffer
	s := spec{
		Path: "./a b", Dir: "/tmp/\xff", Args: []string{"a b", "", "\xfe\n", "ü"}, Env: []string{"A=", "B=1\n2"},
		Grace: 10 * time.Second, Deadline: -5, Foreground: true, Addressee: 4711,
	}
	o := order{Kind: orderDeadline, Signal: syscall.SIGTERM, At: 1 << 60}
	r := report{Kind: reportEnded, Pid: 7, Errno: syscall.ENOEXEC, Signal: 9, Status: 1 << 31, At: -1, Stopped: true, Late: true}
	for _, f := range [][]string{s.fields(), spec{Args: []string{"x"}}.fields(), o.fields(), r.fields()} {
		wire.Write(frame(f...))
	}
	if got, err := readSpec(&wire); err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("got %+v, %v, want %+v", got, err, s)
	}
	if got, err := readSpec(&wire); err != nil || len(got.Args) != 1 || len(got.Env) != 0 {
		t.Errorf("got %+v, %v, want one argument and no environment", got, err)
	}
	if got, err := readOrder(&wire); err != nil || got != o {
		t.Errorf("got %+v, %v, want %+v", got, err, o)
	}
	if got, err := readReport(&wire); err != nil || got != r {
		t.Errorf("got %+v, %v, want %+v", got, err, r)
	}
	if _, err := readReport(&wire); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

func TestMessages_WhatIsNoneIsAnError(t *testing.T) {
	for _, text := range []string{"", "\xff\xff\xff\xff", "\x00\x00\x00\x09abc", string(frame("1", "2")), string(frame("1", "2", "x"))} {
		if _, err := readOrder(strings.NewReader(text)); err == nil {
			t.Errorf("%q is taken for an order", text)
		}
		if _, err := readReport(strings.NewReader(text)); err == nil {
			t.Errorf("%q is taken for a report", text)
		}
		if _, err := readSpec(strings.NewReader(text)); err == nil {
			t.Errorf("%q is taken for a spec", text)
		}
	}
	if _, err := readSpec(bytes.NewReader(frame("0", "0", "0", "5", "p", "", "a"))); err == nil {
		t.Error("a spec with fewer arguments than its count is accepted")
	}
}

func TestStart_RefusesWhatNoSystemCallCanPassOn(t *testing.T) {
	var failed *StartError
	if _, err := Start(Command{Args: []string{"echo", "a\x00b"}}); !errors.As(err, &failed) || !errors.Is(failed.Err, syscall.EINVAL) {
		t.Errorf("got %v, want that the argument is invalid", err)
	}
}
