package source

import (
	"bufio"
	_ "embed"
	"fmt"
	"strings"
)

//go:embed survivors.txt
var survivors string

// Reasons returns the reasons why no test can notice a change, by the change's Key. In
// survivors.txt a line that begins with "#" is a comment, an unindented line is a change
// without its line number, and an indented line is the reason.
func Reasons() (map[string]string, error) {
	reasons := make(map[string]string)
	var keys []string
	fresh := true
	for scan := bufio.NewScanner(strings.NewReader(survivors)); scan.Scan(); {
		line := scan.Text()
		switch {
		case strings.TrimSpace(line) == "" || line[0] == '#':
		case line[0] != '\t':
			if fresh {
				keys, fresh = nil, false
			}
			keys = append(keys, line)
		case len(keys) == 0:
			return nil, fmt.Errorf("survivors.txt: a reason without a change: %s", line)
		default:
			fresh = true
			for _, key := range keys {
				reasons[key] = strings.TrimSpace(reasons[key] + " " + strings.TrimSpace(line))
			}
		}
	}
	return reasons, nil
}
