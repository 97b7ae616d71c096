// Manpages writes the man pages of the command, and the completions of shells, below a
// directory: man/*.1, and completions/ with one file for each of bash, zsh and fish. It is a
// separate program so that the command does not link the packages that make the pages.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

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
	date, err := date()
	if err != nil {
		return err
	}
	pages := cli.Command()
	pages.InitDefaultCompletionCmd()
	pages.DisableAutoGenTag = true // the pages of one state of the source are always the same
	if err := writePages(pages, date, man); err != nil {
		return err
	}
	root := cli.Command() // writePages has changed the texts of the other one
	root.InitDefaultCompletionCmd()
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

// date returns the date of the pages: that of $SOURCE_DATE_EPOCH, and never the day of the
// build. Without that variable it returns zero, and the pages have no date.
func date() (time.Time, error) {
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		return time.Time{}, nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
