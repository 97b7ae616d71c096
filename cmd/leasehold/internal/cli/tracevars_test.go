package cli

import "testing"

func TestSpans_AreOffUnlessTheyAreAskedFor(t *testing.T) {
	type env map[string]string
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for _, row := range []struct {
		env env
		on  bool
	}{
		{env{}, false},
		{env{"OTEL_EXPORTER_OTLP_HEADERS": "a=b"}, false},
		{env{endpoint: "http://c", "OTEL_TRACES_EXPORTER": "none"}, false},
		{env{endpoint: "http://c", "OTEL_SDK_DISABLED": "TRUE"}, false},
		{env{endpoint: "http://c"}, true},
		{env{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://c/v1/traces"}, true},
		{env{"OTEL_TRACES_EXPORTER": "otlp"}, true},
		{env{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, true},
	} {
		on, err := spansAsked(func(name string) string { return row.env[name] })
		if err != nil || on != row.on {
			t.Errorf("%v: spans are sent: %t, %v, want %t", row.env, on, err, row.on)
		}
	}
}
