package proc

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// pidVars are the variables by which systemd addresses one process: the sockets that it
// passes on, and its watchdog, are for the process of that id.
var pidVars = []string{"LISTEN_PID", "WATCHDOG_PID"}

// execName is the argv[0] of a process that puts its own id into pidVars and then executes
// the child in its place. The guard cannot do that: it learns the id after the fork.
const execName = "lease-exec"

// addresses reports whether one of pidVars in env names the process pid.
func addresses(env []string, pid int) bool {
	return slices.ContainsFunc(env, func(pair string) bool { return addressed(pair, strconv.Itoa(pid)) })
}

// addressed reports whether pair sets one of pidVars to pid.
func addressed(pair, pid string) bool {
	name, value, _ := strings.Cut(pair, "=")
	return value == pid && slices.Contains(pidVars, name)
}

// throughSelf returns the program and arguments that execute the child of s by execChild.
func throughSelf(s spec) (path string, args []string, err error) {
	path, err = self()
	return path, append([]string{execName, strconv.Itoa(s.Addressee), s.Path}, s.Args...), err
}

// execChild executes a program as the process that pidVars address instead of addressee.
// It returns only if that fails. Start has found the program already.
func execChild(addressee, path string, args []string) error {
	env := os.Environ()
	for i, pair := range env {
		if addressed(pair, addressee) {
			name, _, _ := strings.Cut(pair, "=")
			env[i] = name + "=" + strconv.Itoa(os.Getpid())
		}
	}
	err := syscall.Exec(path, args, env)
	if err == syscall.ENOEXEC && script(path) {
		err = syscall.Exec("/bin/sh", append([]string{"/bin/sh", path}, args[1:]...), env)
	}
	return err
}
