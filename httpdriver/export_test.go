package httpdriver

// ErrRepeated is an answer that the service had to ask its store for twice.
var ErrRepeated = errRepeated
