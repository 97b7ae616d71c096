package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// screen is standard output, which may be a terminal.
type screen struct {
	w     io.Writer
	width int // 0: without bound
	color bool
}

func newScreen(w io.Writer, color string) (*screen, error) {
	s := &screen{w: w}
	f, ok := w.(*os.File)
	if p, wrapped := w.(*printed); wrapped {
		f, ok = p.w.(*os.File)
	}
	terminal := ok && term.IsTerminal(int(f.Fd()))
	if terminal {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			s.width = width
		}
	}
	switch color {
	case "auto":
		s.color = terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	case "always":
		s.color = true
	case "never":
	default:
		return nil, usage("--color %q is none of auto, always and never", color)
	}
	return s, nil
}

// table prints rows in columns that are as wide as their widest cell, without empty columns. The
// first row is the head. If the table is wider than the terminal, it shortens the columns of shrink.
func (s *screen) table(rows [][]string, shrink []int) error {
	width := widths(rows)
	if s.width > 0 {
		const gap, least = 2, 8
		excess := gap*(len(width)-1) - s.width + 1
		for _, w := range width {
			excess += w
		}
		for _, i := range shrink {
			cut := max(min(excess, width[i]-least), 0)
			width[i] -= cut
			excess -= cut
		}
	}
	for n, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			if width[i] > 0 {
				fmt.Fprintf(&b, "%-*s  ", width[i], cutTo(cell, width[i]))
			}
		}
		line := strings.TrimRight(b.String(), " ")
		if s.color && n == 0 {
			line = "\x1b[1m" + line + "\x1b[0m"
		}
		if _, err := fmt.Fprintln(s.w, line); err != nil {
			return err
		}
	}
	return nil
}

// table prints rows without a bound of their width.
func table(w io.Writer, rows [][]string) { _ = (&screen{w: w}).table(rows, nil) }

func widths(rows [][]string) []int {
	var width []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	return width
}

// cutTo shortens text in its middle: names often have a common beginning, and differ at the
// end.
func cutTo(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	head := (width - 1) / 3
	return string(runes[:head]) + "…" + string(runes[len(runes)-(width-1-head):])
}
