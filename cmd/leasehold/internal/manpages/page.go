package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// writePages writes the pages of a command and of the commands below it.
func writePages(cmd *cobra.Command, date time.Time, dir string) error {
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := writePages(c, date, dir); err != nil {
			return err
		}
	}
	text, err := page(cmd, date)
	if err != nil {
		return err
	}
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
	return os.WriteFile(filepath.Join(dir, name), text, 0o644) //nolint:gosec // all users may read a manual
}

// page returns the page of a command. It changes the texts of the command.
func page(cmd *cobra.Command, date time.Time) ([]byte, error) {
	cmd.InitDefaultHelpFlag()
	cmd.Long = literal(cmd.Long)
	cmd.Flags().VisitAll(nameValue)
	cmd.PersistentFlags().VisitAll(nameValue)
	var b bytes.Buffer
	title := strings.ToUpper(strings.ReplaceAll(cmd.CommandPath(), " ", "-"))
	header := &doc.GenManHeader{Title: title, Section: "1", Source: "Leasehold", Manual: "Leasehold", Date: &date}
	if err := doc.GenMan(cmd, header, &b); err != nil {
		return nil, err
	}
	text := bytes.ReplaceAll(b.Bytes(), []byte(`\fP[=]`), []byte(`\fP`)) // a flag without a value
	if date.IsZero() {
		text = bytes.Replace(text, []byte(date.Format("Jan 2006")), nil, 1)
	}
	return text, nil
}

// literal keeps the line breaks of indented lines, as --help does: it adds blank lines around
// them and four spaces before each. Otherwise the page would join them to a paragraph.
func literal(text string) string {
	var b strings.Builder
	within := false
	for line := range strings.Lines(text) {
		if indented := strings.HasPrefix(line, " "); indented != within {
			within = indented
			b.WriteString("\n")
		}
		if within {
			b.WriteString("    ")
		}
		b.WriteString(line)
	}
	return b.String()
}

// nameValue makes a page show the name of a flag's value instead of the default, as --help
// does.
func nameValue(f *pflag.Flag) {
	if _, done := f.Value.(named); done { // each command visits the flags of all commands
		return
	}
	name, text := pflag.UnquoteUsage(f)
	unset := []string{"", "0", "0s", "false", "[]"}
	if !slices.Contains(unset, f.DefValue) && !strings.Contains(text, "(default") {
		text += " (default " + f.DefValue + ")"
	}
	f.Value, f.Usage, f.DefValue = named{f.Value}, text, ""
	if name != "" {
		f.DefValue = "*" + name + "*"
	}
}

// named is the value of a flag. Its type prevents the quotes that a string would get.
type named struct{ pflag.Value }

// Type implements [pflag.Value].
func (named) Type() string { return "named" }
