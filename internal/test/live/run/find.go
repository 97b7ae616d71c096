package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
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
// is an error, since its test would run nowhere; only package live may call it as it likes.
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
		if dir == "./internal/test/live" {
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

// liveTests returns the names of the live tests in a file.
func liveTests(path string) (names []string, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	marked := make(map[ast.Node]bool)
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || !strings.HasPrefix(f.Name.Name, "Test") || f.Recv != nil || len(f.Body.List) == 0 {
			continue
		}
		if e, ok := f.Body.List[0].(*ast.ExprStmt); ok && marks(e.X) {
			marked[e.X] = true
			names = append(names, f.Name.Name)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if n != nil && marks(n) && !marked[n] {
			err = fmt.Errorf("%s: live.Test is not the first statement of a test", files.Position(n.Pos()))
		}
		return err == nil
	})
	return names, err
}

// marks reports whether a node is a call of live.Test.
func marks(n ast.Node) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := f.X.(*ast.Ident)
	return ok && pkg.Name == "live" && f.Sel.Name == "Test"
}
