package cli

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// spansAsked reports whether the standard environment variables ask for spans:
// OTEL_TRACES_EXPORTER, which is otlp or none, OTEL_SDK_DISABLED, and the endpoint. The
// error names a variable with an invalid value: the exporter itself would use its default.
func spansAsked(getenv func(string) string) (bool, error) {
	endpoint := otlpVariable(getenv, "ENDPOINT")
	switch exporter := getenv("OTEL_TRACES_EXPORTER"); {
	case strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true"), exporter == "none":
		return false, nil
	case exporter == "" && endpoint == "":
		return false, nil
	case exporter != "" && exporter != "otlp":
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER=%q is neither otlp nor none", exporter)
	}
	return true, checkVariables(getenv)
}

func checkVariables(getenv func(string) string) error {
	for _, variable := range []struct {
		word  string
		check func(string) error
	}{
		{"PROTOCOL", checkProtocol}, {"ENDPOINT", checkEndpoint}, {"HEADERS", checkHeaders}, {"TIMEOUT", checkTimeout},
	} {
		value := otlpVariable(getenv, variable.word)
		if value == "" {
			continue
		}
		if err := variable.check(value); err != nil {
			return fmt.Errorf("OTEL_EXPORTER_OTLP_%s: %w", variable.word, err)
		}
	}
	return nil
}

// otlpVariable returns the variable for traces with the suffix word, or, if that is not set,
// the variable for all signals.
func otlpVariable(getenv func(string) string, word string) string {
	if v := getenv("OTEL_EXPORTER_OTLP_TRACES_" + word); v != "" {
		return v
	}
	return getenv("OTEL_EXPORTER_OTLP_" + word)
}

func checkEndpoint(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("not an http or https URL") // it may hold a password
	}
	return nil
}

func checkHeaders(text string) error {
	for pair := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(pair, "=")
		if _, err := url.PathUnescape(value); !ok || err != nil || strings.TrimSpace(name) == "" {
			return errors.New("not of the form name=value,name=value") // it may hold a password
		}
	}
	return nil
}

func checkProtocol(text string) error {
	if text != "http/protobuf" {
		return fmt.Errorf("%q is not spoken, but http/protobuf is", text)
	}
	return nil
}

func checkTimeout(text string) error {
	if ms, err := strconv.ParseUint(text, 10, 31); err != nil || ms == 0 {
		return fmt.Errorf("%q is not a number of milliseconds above 0", text)
	}
	return nil
}
