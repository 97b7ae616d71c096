// Package cli implements the leasehold command. [Run] executes one command line; its
// error carries the exit code. Only main ends the process.
package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/stores"
)

// Run executes the command line args, without the program's name, and prints errors and
// advice on standard error. Main passes the returned error to [Die] and [ExitCode].
// A SIGQUIT ends Run at once while neither a wait nor a child handles it; the end of the
// process then ends the goroutines of Run. Run is called once per process.
func Run(args []string) error {
	g := new(global)
	root := newRoot(g)
	root.SetArgs(args)
	out := &printed{w: os.Stdout}
	root.SetOut(out) // before cobra makes its own verbs, which store it
	refuseUnknown(root)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		offerChoices(root)
	}
	catchQuit()
	done := make(chan error, 1)
	go func() {
		cmd, err := root.ExecuteC()
		err = out.failed(plainly(err))
		g.complain(cmd, err)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case sig := <-unhandledQuit:
		return &exitError{code: 128 + int(sig.(syscall.Signal))}
	}
}

// refuseUnknown makes the verbs of cobra refuse unknown arguments. Otherwise "completion" with
// an unknown shell would print help, and a script would take that for the completion.
func refuseUnknown(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			cmd.RunE = func(*cobra.Command, []string) error { return usage("completion takes the name of a shell") }
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				_, _, err := root.Find(args)
				return err
			}
		}
	}
}

// offerChoices makes shells complete the values of flags with a fixed list of values, and
// show the description of each flag as --help does.
func offerChoices(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			value, text := pflag.UnquoteUsage(f)
			f.Usage = text
			if choices := strings.Split(value, "|"); len(choices) > 1 {
				_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
			}
		})
	}
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
}

// printed is standard output. It stores the first write error: the exit code must not be 0 if
// a script that reads the output gets only a part of it.
type printed struct {
	w   io.Writer
	err error
}

func (p *printed) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	p.err = cmp.Or(p.err, err)
	return n, err
}

// failed returns the error of a verb that returned err, or of the failed write.
func (p *printed) failed(err error) error {
	if p.err == nil || err != nil && !errors.Is(err, p.err) {
		return err
	}
	return &exitError{code: codeOutput, err: cmp.Or(err, p.err)}
}

// Command returns the command with all its verbs, for generated documents.
func Command() *cobra.Command { return newRoot(new(global)) }

func newRoot(g *global) *cobra.Command {
	version := false
	root := &cobra.Command{
		Use:           "leasehold",
		Short:         "Locks that work across machines",
		Long:          about,
		SilenceErrors: true,
		SilenceUsage:  true,
		// Cobra's own version flag uses text/template. This package makes the linker keep every
		// method of every type, which doubles the size of the binary.
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				_, err := fmt.Fprint(cmd.OutOrStdout(), versionText())
				return err
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVar(&version, "version", false, "print the version")
	g.flags(root.PersistentFlags())
	root.AddCommand(newRun(g), newElect(g), newAcquire(g), newRenew(g), newRelease(g), newWait(g),
		newList(g), newInspect(g), newWatch(g), newBreak(g), newDoctor(g), newSchema(g), newServe(g), newHealth(), newBench(g), newVersion(g))
	root.PersistentPreRunE = g.prepare
	for _, verb := range root.Commands() {
		run := verb.RunE
		verb.RunE = func(cmd *cobra.Command, args []string) error { return classify(run(cmd, args)) }
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	return root
}

// complain prints err and advice about it. It prints nothing if err only carries an exit
// code.
func (g *global) complain(cmd *cobra.Command, err error) {
	var exit *exitError
	if err == nil || errors.As(err, &exit) && exit.err == nil {
		return
	}
	code := ExitCode(err)
	w := cmd.ErrOrStderr()
	if g.json {
		fmt.Fprint(w, event{Event: "error", Code: &code, Error: err.Error()})
		return
	}
	fmt.Fprintf(w, "leasehold: %s\n", printableLines(strings.TrimPrefix(err.Error(), "leasehold: ")))
	if text := g.advice(cmd, err); text != "" {
		fmt.Fprintln(w, text)
	}
}

// about is the text of `leasehold --help`.
var about = strings.TrimSpace(`
Leasehold gives commands and programs locks that work across machines.

A lock is a lease: it is granted for a time, renewed while its holder lives, and
its end is always detected. Waiters are served in the order of arrival.

Stores, given by --store or $LEASEHOLD_STORE:
  ` + stores.Examples("\n  ") + `
Without one, a directory of your own keeps the locks. It serves the processes of
one user on one machine; for locks across machines name a Redis or Valkey.

Exit codes:
  0     done; "run" passes on the code of its command, 128+n if signal n killed it
  1     there is no such lease to break, or no leader; "doctor" found locks unsafe
  64    the call is wrong
  65    the name is in use as another kind of lock, or holds foreign data
  69    the store does not answer; no command was started
  70    another failure of leasehold itself
  74    standard output cannot be written; "acquire" has given the lease back
  75    held by others (another code with -E)
  79    the lease was lost; a command was ended
  80    the release could not be confirmed; of "run", the command succeeded
  124   the command was ended by --at-most
  126   the command cannot be executed
  127   the command was not found

Environment:
  LEASEHOLD_STORE       the store, if --store is not given
  LEASEHOLD_STORE_FILE  a file whose first line is the URL of the store
  LEASEHOLD_CONFIG      the configuration file, if --config is not given
  NO_COLOR              no colours, if it has any value
File, in YAML with the keys store, prefix, owner and ttl; flags and environment
win over it. The second is read only if the first does not exist:
  $XDG_CONFIG_HOME/leasehold/config.yaml, /etc/leasehold.yaml
"leasehold run --help" lists the variables that a command of "run" sees.
`)
