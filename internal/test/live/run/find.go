package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// suite is a package with its live tests.
type suite struct {
	dir   string
	tests []string
}

// apart are directories of modules with a workspace of their own, which make live does not
// play, and of tests that depend on other programs.
var apart = []string{"testdata", ".git", "bench", "examples", "integrations", "packaging"}

// find returns the packages below root that have live tests: tests that call [live.Test] in
// their first statement. It leaves out the directories in [apart]. A call of live.Test elsewhere
// is an error, since its test would run nowhere; only package live and this package may name it as they like.
func find(root string) (suites []suite, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(apart, d.Name()):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		dir := "./" + filepath.ToSlash(filepath.Dir(path))
		if dir == "./internal/test/live" || dir == "./internal/test/live/run" {
			return nil
		}
		tests, err := liveTests(path)
		if err != nil || len(tests) == 0 {
			return err
		}
		i := slices.IndexFunc(suites, func(s suite) bool { return s.dir == dir })
		if i < 0 {
			i, suites = len(suites), append(suites, suite{dir: dir})
		}
		suites[i].tests = append(suites[i].tests, tests...)
		return nil
	})
	return suites, err
}

// choose returns the suites with the tests that match the -run flag in flags by name, all of
// them without one, and the other flags. The names of subtests are not matched.
func choose(suites []suite, flags []string) (chosen []suite, others []string, err error) {
	pattern := ""
	for i := 0; i < len(flags); i++ {
		name, value, ok := strings.Cut(strings.TrimLeft(flags[i], "-"), "=")
		if name != "run" || !strings.HasPrefix(flags[i], "-") {
			others = append(others, flags[i])
			continue
		}
		if i++; !ok && i < len(flags) {
			value = flags[i]
		} else {
			i--
		}
		pattern = value
	}
	run, err := regexp.Compile(pattern)
	for _, s := range suites {
		s.tests = slices.DeleteFunc(slices.Clone(s.tests), func(name string) bool { return err == nil && !run.MatchString(name) })
		if len(s.tests) > 0 {
			chosen = append(chosen, s)
		}
	}
	return chosen, others, err
}

// liveTest matches the beginning of a live test, in any text that gofmt has formatted.
var liveTest = regexp.MustCompile(`(?m)^func (Test\w+)\(\w+ \*testing\.T\) \{\s+live\.Test\(`)

// liveTests returns the names of the live tests in a file.
func liveTests(path string) (names []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for _, test := range liveTest.FindAllSubmatch(text, -1) {
		names = append(names, string(test[1]))
	}
	if calls := bytes.Count(text, []byte("live.Test(")); calls != len(names) {
		return nil, fmt.Errorf("%s: live.Test begins %d tests and is called %d times", path, len(names), calls)
	}
	return names, nil
}
