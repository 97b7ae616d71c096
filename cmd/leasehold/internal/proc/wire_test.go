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
		Path: "./a b/\xff", Args: []string{"a b", "", "\xfe\n", "ü"}, Env: []string{"A=", "B=1\n2"},
		Grace: 10 * time.Second, Deadline: -5, Foreground: true, Addressee: 4711,
	}
	o := order{Kind: orderDeadline, Signal: int32(syscall.SIGTERM), At: 1 << 60}
	r := report{Kind: reportEnded, Pid: 7, Errno: uint32(syscall.ENOEXEC), Signal: 9, Status: 1 << 31, At: -1, Stopped: true, Late: true}
	for _, message := range [][]byte{s.encode(), spec{Args: []string{"x"}}.encode(), encode(o), encode(r)} {
		wire.Write(message)
	}
	if got, err := readSpec(&wire); err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("got %+v, %v, want %+v", got, err, s)
	}
	if got, err := readSpec(&wire); err != nil || len(got.Args) != 1 || len(got.Env) != 0 {
		t.Errorf("got %+v, %v, want one argument and no environment", got, err)
	}
	var gotOrder order
	if err := decode(&wire, &gotOrder); err != nil || gotOrder != o {
		t.Errorf("got %+v, %v, want %+v", gotOrder, err, o)
	}
	var gotReport report
	if err := decode(&wire, &gotReport); err != nil || gotReport != r {
		t.Errorf("got %+v, %v, want %+v", gotReport, err, r)
	}
	if err := decode(&wire, &gotReport); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

func TestMessages_WhatIsNoneIsAnError(t *testing.T) {
	sent := spec{Path: "/bin/true", Args: []string{"true"}, Env: []string{"A=1"}}.encode()
	tooLong := encode(specHeader{Bytes: maxText + 1})
	for _, text := range []string{"", "\xff\xff\xff\xff", "\x00\x00\x00\x09abc", string(sent[:len(sent)-1]), string(tooLong)} {
		if _, err := readSpec(strings.NewReader(text)); err == nil {
			t.Errorf("%q is taken for a spec", text)
		}
	}
	for _, whole := range [][]byte{encode(order{Kind: orderStop}), encode(report{Kind: reportEnded})} {
		for n := range whole {
			if err := decode(bytes.NewReader(whole[:n]), new(order)); n < len(encode(order{})) && err == nil {
				t.Errorf("%q is taken for an order", whole[:n])
			}
			if err := decode(bytes.NewReader(whole[:n]), new(report)); err == nil {
				t.Errorf("%q is taken for a report", whole[:n])
			}
		}
	}
	for _, args := range []int64{-1, 2, 1 << 62} {
		text := "p\x00a"
		message := append(encode(specHeader{Args: args, Bytes: int64(len(text))}), text...)
		if _, err := readSpec(bytes.NewReader(message)); err == nil {
			t.Errorf("a spec with one argument is accepted, where its header counts %d", args)
		}
	}
}

func TestStart_RefusesWhatNoSystemCallCanPassOn(t *testing.T) {
	var failed *StartError
	if _, err := Start(Command{Args: []string{"echo", "a\x00b"}}); !errors.As(err, &failed) || !errors.Is(failed.Err, syscall.EINVAL) {
		t.Errorf("got %v, want that the argument is invalid", err)
	}
}
