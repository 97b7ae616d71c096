// Package oneline keeps messages on one line: it joins errors into an error with a text of one
// line, and shortens texts.
package oneline

import "strings"

// Join is [errors.Join] with a semicolon between the texts. It skips nil errors, and returns nil
// without errors.
func Join(errs ...error) error {
	var all joined
	for _, err := range errs {
		if err != nil {
			all = append(all, err)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

type joined []error

func (j joined) Error() string {
	texts := make([]string, len(j))
	for i, err := range j {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap makes the error match all that are joined.
func (j joined) Unwrap() []error { return j }

// Shorten cuts a text from another program, to keep a message readable.
func Shorten(text string) string {
	const most = 80
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
