package history_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/history"
)

func TestHistory_IsWhatManyWritersAppended(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h")
	header := history.Header{Store: "a store", Seed: 1 << 63, Rules: history.Rules{Tokens: true, Prompt: 5}}
	if err := history.Create(path, header); err != nil {
		t.Fatal(err)
	}
	const writers, each = 8, 200
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			w, err := history.Append(path)
			if err != nil {
				t.Error(err)
				return
			}
			defer w.Close()
			for i := range each {
				w.Add(history.Record{At: int64(i), Proc: "p", What: history.Got, Attempt: "a", Token: 1 << 52, Live: true, Note: "two\nlines"})
			}
		})
	}
	wg.Wait()
	h, err := history.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	header.Format, header.Version = history.Format, history.Version
	if h.Header != header || len(h.Records) != writers*each || h.Torn != 0 {
		t.Errorf("%+v, %d records, %d torn", h.Header, len(h.Records), h.Torn)
	}
	want := history.Record{At: h.Records[0].At, Proc: "p", What: history.Got, Attempt: "a", Token: 1 << 52, Live: true, Note: "two\nlines"}
	if !reflect.DeepEqual(h.Records[0], want) {
		t.Errorf("%+v", h.Records[0])
	}
}

func TestHistory_LosesOnlyTheLineOfAWriterThatDied(t *testing.T) {
	const text = `{"format":"leasehold-history","version":1}
{"at":1,"what":"ask"}
{"at":2,"what":"a{"at":3,"what":"got"}
{"at":4,"wh`
	h, err := history.Read(strings.NewReader(text))
	if err != nil || len(h.Records) != 2 || h.Torn != 2 || h.Records[1].At != 3 {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestHistory_RefusesWhatItDoesNotKnow(t *testing.T) {
	const header = `{"format":"leasehold-history","version":1}` + "\n"
	for text, hint := range map[string]string{
		"":     "not a history",
		"{}\n": "not a history",
		`{"format":"leasehold-history","version":2}` + "\n": "version 2",
		header + "nonsense\n":                               "line 2",
	} {
		if _, err := history.Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("%q: %v; want %q", text, err, hint)
		}
	}
	if _, err := history.Load(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Error(err)
	}
}
