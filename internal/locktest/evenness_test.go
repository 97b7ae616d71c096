package locktest_test

import (
	"testing"
	"time"
)

func TestEvenness_MeasuresWhatItSays(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	fair := []served{{0, at(0), at(1), 1}, {1, at(0), at(2), 2}, {0, at(3), at(4), 3}, {1, at(5), at(6), 4}}
	if n, index := overtaken(fair), jain(fair, 2); n != 0 || index != 1 {
		t.Errorf("in turn: %d overtaken, index %v", n, index)
	}
	unfair := []served{{0, at(0), at(1), 1}, {1, at(0), at(2), 4}, {0, at(3), at(4), 2}, {0, at(5), at(6), 3}}
	if n, index := overtaken(unfair), jain(unfair, 2); n != 1 || index != 0.8 {
		t.Errorf("one before the other: %d overtaken, index %v", n, index)
	}
}
