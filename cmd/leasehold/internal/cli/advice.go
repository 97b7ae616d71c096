package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/storeurl"
)

// adviser is implemented by errors with advice.
type adviser interface {
	error
	Advice() string
}

// advised is an error with advice.
type advised struct {
	error
	advice string
}

func (a *advised) Advice() string { return a.advice }

func (a *advised) Unwrap() error { return a.error }

// advice returns a hint how to solve err, or "".
func (g *global) advice(cmd *cobra.Command, err error) string {
	var known adviser
	errors.As(err, &known)
	code := ExitCode(err)
	switch {
	case code == codeUsage:
		return fmt.Sprintf("see: %s --help", cmd.CommandPath())
	case code != codeUnavailable:
		return ""
	case known != nil && known.Advice() != "":
		return known.Advice()
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "its file system has no room for more; df -h shows space, and df -i files"
	case strings.HasPrefix(g.used, "file:"):
		return fmt.Sprintf("--store or $%s names another store", envStore)
	case errors.Is(err, driver.ErrPermanent): // the store is up, and err has its reason
		return fmt.Sprintf("the store is %s; --store or $%s names another", storeurl.Redact(g.used), envStore)
	}
	return fmt.Sprintf("is the store %s up, and may this user reach it? --store or $%s names another", storeurl.Redact(g.used), envStore)
}

// together matches the error of cobra about flags that exclude each other.
var together = regexp.MustCompile(`^if any flags in the group \[.*\] are set none of the others can be; \[(.*)\] were all set$`)

// apart matches the error of cobra about flags that must be set together.
var apart = regexp.MustCompile(`^if any flags in the group \[(.*)\] are set they must all be set; missing \[(.*)\]$`)

// plainly shortens the errors of cobra about flags that exclude each other, or must be set
// together.
func plainly(err error) error {
	if err == nil {
		return nil
	}
	if found := together.FindStringSubmatch(err.Error()); found != nil {
		return usage("--%s exclude each other", strings.ReplaceAll(found[1], " ", " and --"))
	}
	if found := apart.FindStringSubmatch(err.Error()); found != nil {
		return usage("--%s go together; --%s is missing", strings.ReplaceAll(found[1], " ", " and --"), strings.ReplaceAll(found[2], " ", " and --"))
	}
	return err
}

// flagError describes an invalid flag in words.
func flagError(err error) error {
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	if !errors.As(err, &invalid) || !errors.As(err, &number) {
		return usage("%w", err)
	}
	what := "is not a whole number"
	switch {
	case errors.Is(number, strconv.ErrRange):
		what = "is too large"
	case number.Func == "ParseBool":
		what = "is neither true nor false"
	}
	return usage("--%s %q %s", invalid.GetFlag().Name, invalid.GetValue(), what)
}
