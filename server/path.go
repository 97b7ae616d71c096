package server

import (
	"net/url"
	"strings"
)

// maxSegments is more than any path has that there is.
const maxSegments = 8

// part is one segment of a path: as it came, and decoded.
type part struct{ raw, text string }

// split appends the segments of a path to parts; none if there are more than fit,
// or if one cannot be decoded.
func split(u *url.URL, parts []part) []part {
	if u.RawPath == "" {
		return splitPlain(u.Path, parts)
	}
	if parts, ok := splitEncoded(u.RawPath, u.Path, parts); ok {
		return parts
	}
	return splitOther(u, parts)
}

// splitPlain takes a path apart of which it is only known how it is decoded: it came
// encoded as net/url would do it, with no slash within a segment.
func splitPlain(path string, parts []part) []part {
	path = strings.TrimPrefix(path, "/")
	for more := true; more; {
		if len(parts) == cap(parts) {
			return nil
		}
		var text string
		text, path, more = strings.Cut(path, "/")
		parts = append(parts, part{text, text})
	}
	return parts
}

// splitEncoded takes a path apart of which is given how it came, and decoded: both
// have the same segments. ok is false if one is not what the other says, or has
// bytes that should have been encoded.
func splitEncoded(raw, text string, parts []part) (_ []part, ok bool) {
	raw, text = strings.TrimPrefix(raw, "/"), strings.TrimPrefix(text, "/")
	for i, j, from, begin := 0, 0, 0, 0; ; i, j = i+1, j+1 {
		ended := i == len(raw)
		if ended != (j == len(text)) {
			return nil, false
		}
		if ended || raw[i] == '/' {
			if len(parts) == cap(parts) {
				return nil, true
			}
			parts = append(parts, part{raw[from:i], text[begin:j]})
			from, begin = i+1, j+1
		}
		switch {
		case ended:
			return parts, true
		case raw[i] == text[j] && plain[raw[i]]:
		case i+2 < len(raw) && raw[i] == '%' && upper(raw[i+1]) == digits[text[j]>>4] && upper(raw[i+2]) == digits[text[j]&0xf]:
			i += len("2F")
		default:
			return nil, false
		}
	}
}

// splitOther takes apart what net/url would send.
func splitOther(u *url.URL, parts []part) []part {
	for raw := range strings.SplitSeq(strings.TrimPrefix(u.EscapedPath(), "/"), "/") {
		text, err := url.PathUnescape(raw)
		if err != nil || len(parts) == cap(parts) {
			return nil
		}
		parts = append(parts, part{raw, text})
	}
	return parts
}

const digits = "0123456789ABCDEF"

// upper is a hexadecimal digit as we write it.
func upper(digit byte) byte {
	if digit >= 'a' {
		return digit - ('a' - 'A')
	}
	return digit
}

// plain are the bytes that stand in a path as they are.
var plain = func() (is [256]bool) {
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/-_.~:@!$&'()*+,;=" {
		is[c] = true
	}
	return is
}()
