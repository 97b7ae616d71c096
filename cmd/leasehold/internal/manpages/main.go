// Manpages writes the man pages of the command, and the completions of shells, below a
// directory: man/*.1, and completions/ with one file for each of bash, zsh and fish. It is
// a program of its own so that what makes the pages does not become a part of the command.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra/doc"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: manpages DIRECTORY")
		os.Exit(64) //nolint:forbidigo // this is a main
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "manpages:", err)
		os.Exit(1) //nolint:forbidigo // this is a main
	}
}

func write(dir string) error {
	man, completions := filepath.Join(dir, "man"), filepath.Join(dir, "completions")
	if err := errors.Join(os.MkdirAll(man, 0o755), os.MkdirAll(completions, 0o755)); err != nil {
		return err
	}
	root := cli.Command()
	root.InitDefaultCompletionCmd()
	root.DisableAutoGenTag = true // the pages of one state of the source are always the same
	header := &doc.GenManHeader{Title: "LEASEHOLD", Section: "1", Source: "Leasehold", Manual: "Leasehold", Date: date()}
	if err := doc.GenManTree(root, header, man); err != nil {
		return err
	}
	for name, generate := range map[string]func(string) error{
		"leasehold.bash": func(f string) error { return root.GenBashCompletionFileV2(f, true) },
		"_leasehold":     root.GenZshCompletionFile,
		"leasehold.fish": func(f string) error { return root.GenFishCompletionFile(f, true) },
	} {
		if err := generate(filepath.Join(completions, name)); err != nil {
			return err
		}
	}
	return nil
}

// date returns the day that the pages bear: that of $SOURCE_DATE_EPOCH, or the first day
// of all, so that it never depends on the day of the build.
func date() *time.Time {
	seconds, _ := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	t := time.Unix(seconds, 0).UTC()
	return &t
}
