package proc

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

var errNotFound = errors.New("executable file not found in $PATH")

// lookup finds the program as execvp does: a name with a slash is used as it is, other names
// are searched in the PATH of env.
func lookup(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, usable(name)
	}
	search := searchPath(env)
	if name == "" || search == "" {
		return "", errNotFound
	}
	err := errNotFound
	for d := range strings.SplitSeq(search, ":") {
		path := "./" + name
		if d != "" {
			path = strings.TrimSuffix(d, "/") + "/" + name
		}
		switch e := usable(path); {
		case e == nil:
			return path, nil
		case errors.Is(e, syscall.EACCES):
			err = e // a later directory may have one that can be executed
		}
	}
	return "", err
}

func usable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		var reason syscall.Errno
		errors.As(err, &reason) // without the path, which is in StartError
		return reason
	case info.IsDir():
		return syscall.EISDIR
	case unix.Access(path, unix.X_OK) != nil:
		return syscall.EACCES
	}
	return nil
}

func searchPath(env []string) string {
	for _, kv := range env {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			return path
		}
	}
	return "/usr/local/bin:/usr/bin:/bin"
}

// lastOfEach keeps the last of several settings of one name: C programs read the first.
func lastOfEach(env []string) []string {
	last := make(map[string]int, len(env))
	for i, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		last[name] = i
	}
	kept := make([]string, 0, len(last))
	for i, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); last[name] == i {
			kept = append(kept, kv)
		}
	}
	return kept
}

// script reports whether the first line of a file is text. Shells use the same test to
// distinguish a script without "#!" from a binary.
func script(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 128)
	n, _ := f.Read(head)
	line, _, _ := bytes.Cut(head[:n], []byte("\n"))
	return bytes.IndexByte(line, 0) < 0
}
