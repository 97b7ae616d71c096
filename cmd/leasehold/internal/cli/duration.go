package cli

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// duration is a flag that takes seconds, as flock(1) does, or a Go duration.
type duration time.Duration

// durationVar registers a flag with its default.
func durationVar(flags *pflag.FlagSet, d *duration, name string, value time.Duration, usage string) {
	*d = duration(value)
	flags.Var(d, name, usage)
}

// Set implements [pflag.Value].
func (d *duration) Set(text string) error {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		if !(math.Abs(seconds) <= math.MaxInt64/1e9/2) {
			return fmt.Errorf("%s seconds are out of bounds", text)
		}
		*d = duration(seconds * float64(time.Second))
		return nil
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 30s, 1h30m, or plain seconds", text)
	}
	*d = duration(parsed)
	return nil
}

// String implements [pflag.Value].
func (d *duration) String() string {
	if *d <= 0 {
		return "" // not shown as a default
	}
	return time.Duration(*d).String()
}

// Type implements [pflag.Value].
func (d *duration) Type() string { return "duration" }

// span formats a duration for messages.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	d = d.Round(time.Second)
	h, m, s := d/time.Hour, d/time.Minute%60, d/time.Second%60
	switch {
	case h >= 48:
		return fmt.Sprintf("%dd%dh", h/24, h%24)
	case h > 0:
		return fmt.Sprintf("%dh%02dm", h, m)
	case m > 0:
		return fmt.Sprintf("%dm%02ds", m, s)
	}
	return fmt.Sprintf("%ds", s)
}
