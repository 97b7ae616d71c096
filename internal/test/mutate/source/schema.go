package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Schema is the source of a package with all changes, each switched by its number; see package swap.
type Schema struct {
	Texts    map[string]string // by the name of a file
	Numbered map[int]Mutant
	// Alone are changes that have to be made one at a time, for example in a constant
	// that a type depends on.
	Alone []Mutant
	// Unbuilt are changes that do not compile.
	Unbuilt []Mutant
}

const swapPath = "github.com/leasehold-go/leasehold/internal/test/mutate/swap"

// NewSchema builds the Schema of the package in dir, with numbers from first
// on. The named constants stay constants.
func NewSchema(dir string, first int, constants ...string) (*Schema, error) {
	names, err := Files(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	s := &schema{
		set: token.NewFileSet(), files: make(map[string]*file), places: make(map[place]int), mutants: make(map[int]Mutant),
		vars: make(map[types.Object]types.Type), next: first, stay: constants,
	}
	if s.imports, err = imports(s.set, "./"+filepath.ToSlash(dir), swapPath); err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := s.add(name); err != nil {
			return nil, err
		}
	}
	return s.make()
}

// schema is a Schema under construction.
type schema struct {
	set     *token.FileSet
	imports types.Importer
	names   []string
	files   map[string]*file
	places  map[place]int
	mutants map[int]Mutant
	next    int

	pkg  *types.Package
	info *types.Info
	// vars maps constants that become variables to their types.
	vars map[types.Object]types.Type
	stay []string // names of constants that do not

	// The state while a file is rendered.
	file    *file
	put     map[int]bool
	unbuilt map[int]bool
}

type file struct {
	name, text string
	tree       *ast.File
}

type place struct {
	file  string
	at    int
	after string
}

func (s *schema) add(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	tree, err := parser.ParseFile(s.set, name, text, 0)
	if err != nil {
		return err
	}
	s.names = append(s.names, name)
	s.files[name] = &file{name: name, text: string(text), tree: tree}
	mutants, err := Go(name, string(text))
	if err != nil {
		return err
	}
	for _, m := range mutants {
		s.places[place{name, m.at, m.after}] = s.next
		s.mutants[s.next] = m
		s.next++
	}
	return nil
}

func (s *schema) make() (*Schema, error) {
	var trees []*ast.File
	for _, name := range s.names {
		trees = append(trees, s.files[name].tree)
	}
	s.info = &types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object), Defs: make(map[*ast.Ident]types.Object)}
	var err error
	if s.pkg, err = s.check(s.set, trees, s.info); err != nil {
		return nil, err
	}
	for obj, t := range s.variables() {
		s.vars[obj] = t
		if _, err := s.checked(); err != nil {
			delete(s.vars, obj)
		}
	}
	texts, err := s.checked()
	if err != nil {
		return nil, err
	}
	made := &Schema{Texts: texts, Numbered: make(map[int]Mutant)}
	for n, m := range s.mutants {
		switch {
		case s.put[n]:
			made.Numbered[n] = m
		case s.unbuilt[n]:
			made.Unbuilt = append(made.Unbuilt, m)
		default:
			made.Alone = append(made.Alone, m)
		}
	}
	return made, nil
}

func (s *schema) check(set *token.FileSet, trees []*ast.File, info *types.Info) (*types.Package, error) {
	return (&types.Config{Importer: s.imports}).Check(trees[0].Name.Name, set, trees, info)
}

// checked renders all files and type-checks them.
func (s *schema) checked() (map[string]string, error) {
	s.put, s.unbuilt = make(map[int]bool), make(map[int]bool)
	texts := make(map[string]string)
	set := token.NewFileSet()
	var trees []*ast.File
	for _, name := range s.names {
		s.file = s.files[name]
		text := s.render(s.file.tree)
		if strings.Contains(text, "swap_.") {
			header := "package " + s.file.tree.Name.Name
			text = strings.Replace(text, header+"\n", header+"; import swap_ \""+swapPath+"\"\n", 1)
		}
		texts[name] = text
		tree, err := parser.ParseFile(set, name, text, 0)
		if err != nil {
			return nil, err
		}
		trees = append(trees, tree)
	}
	_, err := s.check(set, trees, nil)
	return texts, err
}

// variables returns the constants of the package that have changes and are used as one type.
func (s *schema) variables() map[types.Object]types.Type {
	all := make(map[types.Object]types.Type)
	mixed := make(map[types.Object]bool)
	for ident, obj := range s.info.Uses {
		if c, ok := obj.(*types.Const); !ok || c.Parent() != s.pkg.Scope() || slices.Contains(s.stay, c.Name()) {
			continue
		}
		t := s.info.Types[ident].Type
		if t == nil {
			t = obj.Type()
		}
		if old := all[obj]; old != nil && !types.Identical(old, t) {
			mixed[obj] = true
		}
		all[obj] = t
	}
	for _, name := range s.pkg.Scope().Names() { // exported constants, which other packages may use
		if c, ok := s.pkg.Scope().Lookup(name).(*types.Const); ok && all[c] == nil && c.Exported() && !slices.Contains(s.stay, name) {
			all[c] = c.Type()
		}
	}
	for obj, t := range all {
		if basic, ok := t.(*types.Basic); mixed[obj] || ok && basic.Info()&types.IsUntyped != 0 {
			delete(all, obj)
		}
	}
	return all
}

func (s *schema) offset(p token.Pos) int { return s.set.Position(p).Offset }

func (s *schema) source(n ast.Node) string {
	return s.file.text[s.offset(n.Pos()):s.offset(n.End())]
}

// number returns the number of a change, 0 if it has no number.
func (s *schema) number(at token.Pos, after string) int {
	n := s.places[place{s.file.name, s.offset(at), after}]
	if n != 0 {
		s.put[n] = true
	}
	return n
}

// render returns the text of a node with its changes.
func (s *schema) render(n ast.Node) string {
	switch n := n.(type) {
	case *ast.File:
		text := s.within(n)
		start, end := s.offset(n.Pos()), s.offset(n.End())
		return s.file.text[:start] + text + s.file.text[end:]
	case *ast.ImportSpec, *ast.Field, *ast.FuncType:
		return s.source(n)
	case *ast.FuncDecl:
		if n.Body == nil {
			return s.source(n)
		}
		return s.file.text[s.offset(n.Pos()):s.offset(n.Body.Pos())] + s.render(n.Body)
	case *ast.ArrayType:
		if n.Len != nil {
			return s.source(n)
		}
	case *ast.GenDecl:
		if n.Tok == token.CONST {
			return s.constants(n)
		}
	case *ast.IfStmt:
		return s.within(n)
	case ast.Expr:
		if s.constant(n) {
			return s.values(n, s.info.Types[n].Type)
		}
		return s.expression(n)
	}
	return s.within(n)
}

// within returns the text of a node with the changes of its parts.
func (s *schema) within(n ast.Node) string {
	var b strings.Builder
	at := s.offset(n.Pos())
	for _, part := range parts(n) {
		b.WriteString(s.file.text[at:s.offset(part.Pos())])
		text := s.render(part)
		if in, ok := n.(*ast.IfStmt); ok && part == in.Cond {
			if m := s.condition(in.Cond); m != 0 {
				text = fmt.Sprintf("swap_.Not(%d, %s)", m, text)
			}
		}
		b.WriteString(text)
		at = s.offset(part.End())
	}
	b.WriteString(s.file.text[at:s.offset(n.End())])
	return b.String()
}

func (s *schema) condition(cond ast.Expr) int {
	switch cond.(type) {
	case *ast.CallExpr, *ast.Ident, *ast.SelectorExpr:
		return s.number(cond.Pos(), "!"+s.source(cond))
	}
	return 0
}

func parts(n ast.Node) (all []ast.Node) {
	ast.Inspect(n, func(c ast.Node) bool {
		if c == nil || c == n {
			return c != nil
		}
		all = append(all, c)
		return false
	})
	slices.SortStableFunc(all, func(a, b ast.Node) int { return int(a.Pos() - b.Pos()) })
	return all
}

// constant reports whether an expression is constant, and stays constant.
func (s *schema) constant(n ast.Expr) bool {
	if s.info.Types[n].Value == nil {
		return false
	}
	varies := false
	ast.Inspect(n, func(c ast.Node) bool {
		if ident, ok := c.(*ast.Ident); ok && s.vars[s.info.Uses[ident]] != nil {
			varies = true
		}
		return true
	})
	return !varies
}

// values returns the text of a constant of type t with its changes.
func (s *schema) values(n ast.Expr, t types.Type) string {
	text := s.source(n)
	start, end := s.offset(n.Pos()), s.offset(n.End())
	var found []int
	for p, number := range s.places {
		if p.file == s.file.name && p.at >= start && p.at < end {
			found = append(found, number)
		}
	}
	if len(found) == 0 {
		return text
	}
	slices.Sort(found)
	name, ok := s.typeName(types.Default(t))
	if !ok {
		return text
	}
	was := text
	for _, number := range found {
		m := s.mutants[number]
		is := text[:m.at-start] + m.after + text[m.at-start+len(m.before):]
		if _, err := types.Eval(s.set, s.pkg, n.Pos(), name+"("+is+")"); err != nil {
			s.unbuilt[number] = true
			continue
		}
		s.put[number] = true
		was = fmt.Sprintf("swap_.Value[%s](%d, %s, %s)", name, number, was, is)
	}
	return was
}

// typeName returns the name of a type as written in the file.
func (s *schema) typeName(t types.Type) (name string, ok bool) {
	ok = true
	name = types.TypeString(t, func(p *types.Package) string {
		if p == s.pkg {
			return ""
		}
		imported := slices.ContainsFunc(s.file.tree.Imports, func(i *ast.ImportSpec) bool {
			return i.Name == nil && strings.Trim(i.Path.Value, `"`) == p.Path()
		})
		ok = ok && imported
		return p.Name()
	})
	return name, ok
}

var comparisons = map[token.Token]string{token.LSS: "Less", token.LEQ: "LessEqual", token.GTR: "Greater", token.GEQ: "GreaterEqual"}

var operations = map[token.Token]string{
	token.ADD: "Add", token.SUB: "Sub", token.MUL: "Mul", token.QUO: "Div", token.SHL: "Left", token.SHR: "Right",
}

func (s *schema) expression(n ast.Expr) string {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		return s.binary(n)
	case *ast.UnaryExpr:
		if m := s.number(n.OpPos, ""); m != 0 {
			f := map[token.Token]string{token.NOT: "Not", token.SUB: "Minus"}[n.Op]
			if n.Op == token.NOT {
				return fmt.Sprintf("swap_.%s(%d, !%s)", f, m, s.render(n.X))
			}
			return fmt.Sprintf("swap_.%s(%d, %s)", f, m, s.render(n.X))
		}
	case *ast.CallExpr:
		name, ok := n.Fun.(*ast.Ident)
		if !ok || name.Name != "min" && name.Name != "max" {
			break
		}
		m := s.number(name.Pos(), others[name.Name][0])
		f := map[string]string{"min": "Min", "max": "Max"}[name.Name]
		args := []string{fmt.Sprint(m)}
		for _, arg := range n.Args {
			args = append(args, s.render(arg))
		}
		return "swap_." + f + "(" + strings.Join(args, ", ") + ")"
	}
	return s.within(n)
}

func (s *schema) binary(n *ast.BinaryExpr) string {
	op := n.Op.String()
	after := others[op]
	if n.Op == token.EQL {
		after = []string{"!="}
	}
	if len(after) == 0 {
		return s.within(n)
	}
	if basic, ok := s.info.Types[n].Type.Underlying().(*types.Basic); ok && n.Op == token.ADD && basic.Info()&types.IsString != 0 {
		s.unbuilt[s.places[place{s.file.name, s.offset(n.OpPos), "-"}]] = true
		return s.within(n)
	}
	m := s.number(n.OpPos, after[0])
	for _, other := range after[1:] {
		s.number(n.OpPos, other)
	}
	x, y := s.render(n.X), s.render(n.Y)
	switch n.Op {
	case token.EQL, token.NEQ:
		return fmt.Sprintf("swap_.Not(%d, %s %s %s)", m, x, op, y)
	case token.LAND, token.LOR:
		f := map[token.Token]string{token.LAND: "And", token.LOR: "Or"}[n.Op]
		return fmt.Sprintf("swap_.%s(%d, %s, func() bool { return (%s) })", f, m, x, y)
	}
	f := comparisons[n.Op] + operations[n.Op]
	return fmt.Sprintf("swap_.%s(%d, %s, %s)", f, m, x, y)
}

// constants returns the text of a declaration of constants, some of which become variables.
func (s *schema) constants(n *ast.GenDecl) string {
	var b, variables strings.Builder
	at := s.offset(n.Pos())
	for _, spec := range n.Specs {
		spec, ok := spec.(*ast.ValueSpec)
		if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 {
			continue
		}
		t := s.vars[s.info.Defs[spec.Names[0]]]
		name, ok := "", false
		if t != nil {
			name, ok = s.typeName(t)
		}
		if !ok {
			continue
		}
		value := ""
		if s.constant(spec.Values[0]) {
			value = s.values(spec.Values[0], t)
		} else {
			value = s.expression(spec.Values[0])
		}
		fmt.Fprintf(&variables, "var %s %s = %s;", spec.Names[0].Name, name, value)
		b.WriteString(s.file.text[at:s.offset(spec.Pos())])
		at = s.offset(spec.End())
	}
	b.WriteString(s.file.text[at:s.offset(n.End())])
	text := b.String()
	if variables.Len() == 0 {
		return text
	}
	if !n.Lparen.IsValid() {
		return strings.TrimSuffix(variables.String(), ";")
	}
	return text + ";" + strings.TrimSuffix(variables.String(), ";")
}

// imports returns an importer of the types of packages, as compiled by the go command.
func imports(set *token.FileSet, packages ...string) (types.Importer, error) {
	var stderr bytes.Buffer
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Export"}, packages...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, stderr.Bytes())
	}
	exports := make(map[string]string)
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
	}
	return importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no package %q", path)
		}
		return os.Open(exports[path])
	}), nil
}
