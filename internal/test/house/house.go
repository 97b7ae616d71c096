// Command house counts what makes the project large: lines, files, folders, words of
// documents, and unclear words. It compares each count with limits.txt and exits with 1 if a
// count is above its limit.
//
//	go run ./internal/test/house       print the counts and compare them
//	go run ./internal/test/house -set  lower the limits to the counts
//
// A change that needs a higher limit raises it by hand in limits.txt, where a reviewer sees it.
package main

import (
	"bufio"
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

//go:embed limits.txt
var limits string

var set = flag.Bool("set", false, "lower the limits to the counts")

func main() {
	flag.Parse()
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1) //nolint:forbidigo // this is a program
	}
}

// run prints the counts to w. The error names the counts above their limits.
func run(w io.Writer) error {
	out, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	counts, err := count(strings.Split(strings.TrimRight(string(out), "\x00"), "\x00"), os.ReadFile)
	if err != nil {
		return err
	}
	table, next, above := compare(counts, limits)
	fmt.Fprint(w, table)
	if *set {
		if err := os.WriteFile("internal/test/house/limits.txt", []byte(next), 0o600); err != nil {
			return err
		}
	}
	if above != "" {
		return fmt.Errorf("above the limit: %s", above)
	}
	return nil
}

// compare returns a table of counts and limits, the limits lowered to the counts, and the
// names of counts that are above their limits.
func compare(counts map[string]float64, limits string) (table, next, above string) {
	var names []string
	for line := range strings.Lines(limits) {
		name, text, ok := strings.Cut(strings.TrimSpace(line), ": ")
		limit, err := strconv.ParseFloat(text, 64)
		n, known := counts[name]
		if !ok || err != nil || !known {
			return "", limits, fmt.Sprintf("limits.txt has the line %q", line)
		}
		names = append(names, name)
		table += fmt.Sprintf("%-44s %8v of at most %v\n", name, n, limit)
		next += fmt.Sprintf("%s: %v\n", name, min(n, limit))
		if n > limit {
			above += fmt.Sprintf("%s (%v, limit %v) ", name, n, limit)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if !slices.Contains(names, name) {
			return "", limits, fmt.Sprintf("limits.txt does not have %q", name)
		}
	}
	return table, next, strings.TrimSpace(above)
}

// support matches Go files that are neither the product nor tests by name.
var support = regexp.MustCompile(`^(internal/test|driver/drivertest|driver/roomdriver/tabletest|bench|examples|integrations|internal/tools|server/browsertest)/|/chaos/`)

// store matches the files of stores that are modules of their own, because their clients are large.
var store = regexp.MustCompile(`^driver/(etcd|mysql|nats|s3)driver/`)

// count returns the counts of the files with these names.
func count(files []string, read func(string) ([]byte, error)) (map[string]float64, error) {
	counts := make(map[string]float64)
	folders := make(map[string]bool)
	unclear := make(map[string]*words)
	for _, group := range []string{"product", "tests", "documents"} {
		unclear[group] = new(words)
	}
	for _, file := range files {
		text, err := read(file)
		if os.IsNotExist(err) {
			continue // deleted and not committed yet
		}
		if err != nil {
			return nil, err
		}
		if top, _, in := strings.Cut(file, "/"); in && !strings.HasPrefix(top, ".") {
			folders[top] = true
		}
		lines := float64(bytes.Count(text, []byte("\n")))
		test := strings.HasSuffix(file, "_test.go") || store.MatchString(file) && strings.Contains(file, "/internal/")
		of := ""
		if store.MatchString(file) {
			of = ", stores apart"
		}
		switch ext := path.Ext(file); {
		case strings.Contains(file, "/testdata/"):
		case ext == ".md":
			counts["words of documents"] += float64(len(bytes.Fields(text)))
			unclear["documents"].add(string(text))
		case ext == ".go" && (test || support.MatchString(file)):
			counts["lines of tests and their support"+of] += lines
			unclear["tests"].add(prose(text))
			if test && path.Dir(file) == "." {
				counts["test files of the root"]++
			}
		case ext == ".go":
			counts["lines of the product"+of] += lines
			unclear["product"].add(prose(text))
			if path.Dir(file) == "." {
				counts["files of the root"]++
				counts["lines of the root"] += lines
			}
		}
	}
	counts["folders of the root"] = float64(len(folders))
	for group, w := range unclear {
		counts["unclear of 1000 words, "+group] = w.perThousand()
	}
	return counts, nil
}

// unclearWords are words that often hide the subject of a sentence or treat a program like a
// person.
var unclearWords = regexp.MustCompile(`(?i)\b(what|who|whom|whose|whoever|whatever|nobody|nothing|none|anybody|somebody|everybody|` +
	`tell|tells|told|telling|say|says|said|saying|knows|knew|hears?|heard|believes?|wants|` +
	`anew|beside|meanwhile|altogether|alike|whereupon|afresh|once more|so long|by itself|those|others|ones|the one)\b`)

var anyWord = regexp.MustCompile(`[A-Za-z']+`)

type words struct{ all, unclear int }

func (w *words) add(text string) {
	w.all += len(anyWord.FindAllString(text, -1))
	w.unclear += len(unclearWords.FindAllString(text, -1))
}

// perThousand returns the unclear words of a thousand, rounded to one decimal.
func (w *words) perThousand() float64 {
	return float64(int(10000*float64(w.unclear)/float64(max(w.all, 1))+0.5)) / 10
}

var (
	comment = regexp.MustCompile(`(?:^|\s)//\s?(.*)`)
	literal = regexp.MustCompile(`"((?:[^"\\]|\\.){12,})"`)
)

// prose returns the comments of a Go file and the strings that are sentences.
func prose(text []byte) string {
	var b strings.Builder
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		if m := comment.FindStringSubmatch(s.Text()); m != nil {
			b.WriteString(m[1] + "\n")
			continue
		}
		for _, m := range literal.FindAllStringSubmatch(s.Text(), -1) {
			if strings.Contains(m[1], " ") {
				b.WriteString(m[1] + "\n")
			}
		}
	}
	return b.String()
}
