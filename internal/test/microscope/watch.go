package microscope

import (
	"fmt"
	"strconv"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
)

// Noted is called with a place of a script's text whose value would have been different with
// another word there: the number of the word among the words that can be changed, in their order,
// and the number of the other word in the list of [source.Others].
type Noted func(text string, word, other int)

// watch makes the script call s.Noted, and returns the words that are watched.
func (s *Server) watch(text string, chunk []ast.Stmt) []string {
	w := &watcher{text: text}
	w.block(chunk)
	return w.words
}

// The names of the functions that watch a script, which the script itself does not use.
const (
	noteValue = "\x00value" // of one value, which would be another one
	noteLeft  = "\x00left"  // of the left side of a logical operation
	noteLogic = "\x00logic" // of its outcome
	noteOrder = "\x00order" // of a comparison
	noteSum   = "\x00sum"   // of an arithmetic operation
	noteEnds  = "\x00ends"  // of math.min and math.max
)

func (s *Server) openWatch() {
	l := s.state
	var left []lua.LValue
	told := func(l *lua.LState, others ...int) {
		for _, other := range others {
			s.Noted(l.CheckString(1), l.CheckInt(2), other)
		}
	}
	set := func(name string, f lua.LGFunction) { l.G.Global.RawSetString(name, l.NewFunction(f)) }
	set(noteValue, func(l *lua.LState) int {
		told(l, 0)
		l.Push(l.Get(3))
		return 1
	})
	set(noteLeft, func(l *lua.LState) int {
		left = append(left, l.Get(1))
		l.Push(l.Get(1))
		return 1
	})
	set(noteLogic, func(l *lua.LState) int {
		first := left[len(left)-1]
		left = left[:len(left)-1]
		outcome, and, truth := l.Get(5), l.Get(3) == lua.LString("and"), l.Get(4) == lua.LTrue
		same := outcome == first
		if truth {
			same = lua.LVAsBool(outcome) == lua.LVAsBool(first)
		}
		if lua.LVAsBool(first) != and || !same {
			told(l, 0)
		}
		l.Push(outcome)
		return 1
	})
	set(noteOrder, func(l *lua.LState) int {
		a, b := l.Get(4), l.Get(5)
		outcome := false
		switch l.CheckString(3) {
		case "==":
			outcome = l.Equal(a, b)
			told(l, 0)
		case "~=":
			outcome = !l.Equal(a, b)
			told(l, 0)
		case "<":
			outcome = l.LessThan(a, b)
		case "<=":
			outcome = !l.LessThan(b, a)
		case ">":
			outcome = l.LessThan(b, a)
		case ">=":
			outcome = !l.LessThan(a, b)
		}
		if op := l.CheckString(3); op != "==" && op != "~=" {
			told(l, 1)
			if l.Equal(a, b) {
				told(l, 0)
			}
		}
		l.Push(lua.LBool(outcome))
		return 1
	})
	set(noteSum, func(l *lua.LState) int {
		a, aOK := number(l.Get(4))
		b, bOK := number(l.Get(5))
		if !aOK || !bOK {
			l.RaiseError("attempt to perform arithmetic on a non-number")
		}
		all := map[string]float64{"+": a + b, "-": a - b, "*": a * b, "/": a / b}
		op := l.CheckString(3)
		if all[op] != all[map[string]string{"+": "-", "-": "+", "*": "/", "/": "*"}[op]] {
			told(l, 0)
		}
		l.Push(lua.LNumber(all[op]))
		return 1
	})
	set(noteEnds, func(l *lua.LState) int {
		first := float64(l.CheckNumber(4))
		least, greatest := first, first
		for i := 5; i <= l.GetTop(); i++ {
			n := float64(l.CheckNumber(i))
			least, greatest = min(least, n), max(greatest, n)
		}
		if least != greatest {
			told(l, 0)
		}
		if l.CheckString(3) == "min" {
			greatest = least
		}
		l.Push(lua.LNumber(greatest))
		return 1
	})
}

// watcher rewrites a script. It walks in the order of the text.
type watcher struct {
	text  string
	words []string
}

func (w *watcher) word(s string) int {
	w.words = append(w.words, s)
	return len(w.words) - 1
}

func (w *watcher) call(at ast.Expr, name string, word int, args ...ast.Expr) ast.Expr {
	fixed := []ast.Expr{&ast.StringExpr{Value: w.text}, &ast.NumberExpr{Value: strconv.Itoa(word)}}
	return placed(at, &ast.FuncCallExpr{Func: &ast.IdentExpr{Value: name}, Args: append(fixed, args...), AdjustRet: true})
}

// placed gives an expression and its parts the line of another.
func placed(at ast.Expr, call *ast.FuncCallExpr) ast.Expr {
	call.SetLine(at.Line())
	call.SetLastLine(at.LastLine())
	call.Func.SetLine(at.Line())
	for _, arg := range call.Args {
		if arg.Line() == 0 {
			arg.SetLine(at.Line())
		}
	}
	return call
}

// boxed is ({e})[1]: the interpreter puts the function of a call into the variable to which
// its outcome is assigned, before it looks at the arguments, if that is the last parameter.
func boxed(e ast.Expr) ast.Expr {
	box, first := &ast.TableExpr{Fields: []*ast.Field{{Value: e}}}, &ast.NumberExpr{Value: "1"}
	get := &ast.AttrGetExpr{Object: box, Key: first}
	for _, part := range []ast.Expr{box, first, get} {
		part.SetLine(e.Line())
		part.SetLastLine(e.LastLine())
	}
	return get
}

func (w *watcher) block(stmts []ast.Stmt) {
	for _, stmt := range stmts {
		w.stmt(stmt)
	}
}

func (w *watcher) stmt(stmt ast.Stmt) {
	switch n := stmt.(type) {
	case *ast.AssignStmt:
		w.list(n.Lhs)
		for i, e := range n.Rhs {
			if n.Rhs[i] = w.expr(e, false); n.Rhs[i] != e {
				n.Rhs[i] = boxed(n.Rhs[i])
			}
		}
	case *ast.LocalAssignStmt:
		w.list(n.Exprs)
	case *ast.FuncCallStmt:
		n.Expr = w.expr(n.Expr, false)
	case *ast.DoBlockStmt:
		w.block(n.Stmts)
	case *ast.WhileStmt:
		n.Condition = w.expr(n.Condition, true)
		w.block(n.Stmts)
	case *ast.RepeatStmt:
		w.block(n.Stmts)
		n.Condition = w.expr(n.Condition, true)
	case *ast.IfStmt:
		n.Condition = w.expr(n.Condition, true)
		w.block(n.Then)
		w.block(n.Else)
	case *ast.NumberForStmt:
		n.Init, n.Limit = w.expr(n.Init, false), w.expr(n.Limit, false)
		if n.Step != nil {
			n.Step = w.expr(n.Step, false)
		}
		w.block(n.Stmts)
	case *ast.GenericForStmt:
		w.list(n.Exprs)
		w.block(n.Stmts)
	case *ast.FuncDefStmt:
		w.block(n.Func.Stmts)
	case *ast.ReturnStmt:
		w.list(n.Exprs)
	case *ast.BreakStmt:
	default:
		panic(fmt.Sprintf("microscope: %T is not watched", stmt))
	}
}

func (w *watcher) list(all []ast.Expr) {
	for i := range all {
		all[i] = w.expr(all[i], false)
	}
}

// expr rewrites an expression; if truth is set, only its truth matters.
func (w *watcher) expr(e ast.Expr, truth bool) ast.Expr {
	switch n := e.(type) {
	case *ast.TrueExpr:
		return w.call(e, noteValue, w.word("true"), e)
	case *ast.FalseExpr:
		return w.call(e, noteValue, w.word("false"), e)
	case *ast.NumberExpr:
		return w.call(e, noteValue, w.word(n.Value), e)
	case *ast.AttrGetExpr:
		n.Object = w.expr(n.Object, false)
		key, named := n.Key.(*ast.StringExpr)
		if !named {
			n.Key = w.expr(n.Key, false)
		} else if key.Value == "min" || key.Value == "max" {
			n.Object = w.call(n.Object, noteValue, w.word(key.Value), n.Object) // e may be assigned to
		}
	case *ast.TableExpr:
		for _, f := range n.Fields {
			if f.Key != nil {
				f.Key = w.expr(f.Key, false)
			}
			f.Value = w.expr(f.Value, false)
		}
	case *ast.FuncCallExpr:
		return w.called(n)
	case *ast.LogicalOpExpr:
		lhs := w.expr(n.Lhs, truth)
		k := w.word(n.Operator)
		rhs := w.expr(n.Rhs, truth)
		var truly ast.Expr = &ast.FalseExpr{}
		if truth {
			truly = &ast.TrueExpr{}
		}
		n.Lhs, n.Rhs = placed(e, &ast.FuncCallExpr{Func: &ast.IdentExpr{Value: noteLeft}, Args: []ast.Expr{lhs}, AdjustRet: true}), rhs
		return w.call(e, noteLogic, k, &ast.StringExpr{Value: n.Operator}, truly, n)
	case *ast.RelationalOpExpr:
		lhs := w.expr(n.Lhs, false)
		k := w.word(n.Operator)
		return w.call(e, noteOrder, k, &ast.StringExpr{Value: n.Operator}, lhs, w.expr(n.Rhs, false))
	case *ast.ArithmeticOpExpr:
		lhs := w.expr(n.Lhs, false)
		switch n.Operator {
		case "+", "-", "*", "/":
			k := w.word(n.Operator)
			return w.call(e, noteSum, k, &ast.StringExpr{Value: n.Operator}, lhs, w.expr(n.Rhs, false))
		}
		n.Lhs, n.Rhs = lhs, w.expr(n.Rhs, false)
	case *ast.StringConcatOpExpr:
		n.Lhs, n.Rhs = w.expr(n.Lhs, false), w.expr(n.Rhs, false)
	case *ast.UnaryMinusOpExpr:
		k := w.word("-")
		n.Expr = w.expr(n.Expr, false)
		return w.call(e, noteValue, k, n)
	case *ast.UnaryNotOpExpr:
		k := w.word("not")
		n.Expr = w.expr(n.Expr, true)
		return w.call(e, noteValue, k, n)
	case *ast.UnaryLenOpExpr:
		n.Expr = w.expr(n.Expr, false)
	case *ast.FunctionExpr:
		w.block(n.Stmts)
	}
	return e
}

// called rewrites a call.
func (w *watcher) called(n *ast.FuncCallExpr) ast.Expr {
	if n.Func == nil {
		n.Receiver = w.expr(n.Receiver, false)
		w.list(n.Args)
		return n
	}
	if f, ok := n.Func.(*ast.AttrGetExpr); ok {
		object, _ := f.Object.(*ast.IdentExpr)
		key, _ := f.Key.(*ast.StringExpr)
		if object != nil && key != nil && object.Value == "math" && (key.Value == "min" || key.Value == "max") {
			k := w.word(key.Value)
			w.list(n.Args)
			return w.call(n, noteEnds, k, append([]ast.Expr{key}, n.Args...)...)
		}
	}
	n.Func = w.expr(n.Func, false)
	w.list(n.Args)
	return n
}
