package history_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/history"
)

func TestHistory_IsWhatManyWritersAppended(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h")
	record := history.Record{At: 3, Proc: "p", What: history.Got, Attempt: "a", Token: 1 << 52, Live: true, Note: "two\nlines"}
	if w, err := history.Create(path); err != nil || w.Close() != nil {
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
			for range each {
				w.Add(record)
			}
		})
	}
	wg.Wait()
	records, err := history.Load(path)
	if want := slices.Repeat([]history.Record{record}, writers*each); err != nil || !slices.Equal(records, want) {
		t.Errorf("%d records, %v", len(records), err)
	}
}

func TestHistory_LosesOnlyTheLineOfAWriterThatDied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h")
	load := func(text string) ([]history.Record, error) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return history.Load(path)
	}
	records, err := load(`{"at":1,"what":"ask"}
{"at":2,"what":"a{"at":3,"what":"got"}
{"at":4,"wh`)
	if err != nil || len(records) != 2 || records[1].At != 3 {
		t.Errorf("%+v, %v", records, err)
	}
	if _, err := load("{}\nnonsense\n"); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("nonsense is read: %v", err)
	}
}
