package swap

import "testing"

// outcomes are those of every function with the change of each number.
func outcomes() []any {
	yes, no := func() bool { return true }, func() bool { return false }
	return []any{
		Value(1, 5, 6), Not(1, true), And(1, true, no), And(1, false, yes), Or(1, true, no), Or(1, false, yes),
		Less(1, 3, 3), LessEqual(1, 3, 3), Greater(1, 3, 3), GreaterEqual(1, 3, 3),
		Less(1, 2, 3), LessEqual(1, 2, 3), Greater(1, 2, 3), GreaterEqual(1, 2, 3),
		Add(1, 7, 2), Sub(1, 7, 2), Mul(1, 7, 2), Div(1, 7, 2), Left(1, 8, 1), Right(1, 8, 1), Minus(1, 7), Min(1, 7, 2, 9), Max(1, 7, 2, 9),
	}
}

func TestSwap_IsWhatItStandsForOrTheChangeInForce(t *testing.T) {
	want := [][]any{
		{5, true, false, false, true, true, false, true, false, true, true, true, false, false, 9, 5, 14, 3, 16, 4, -7, 2, 9},
		{6, false, true, true, false, false, true, false, true, false, true, true, false, false, 5, 9, 3, 14, 4, 16, 7, 9, 2},
		{5, true, false, false, true, true, true, false, true, false, false, false, true, true, 9, 5, 14, 3, 16, 4, -7, 2, 9},
	}
	defer func() { active = 0 }()
	for active = range want {
		for i, got := range outcomes() {
			if got != want[active][i] {
				t.Errorf("change %d, function %d: %v, want %v", active, i, got, want[active][i])
			}
		}
	}
}
