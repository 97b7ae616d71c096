package otlp

import (
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// The messages of OTLP in JSON: names in camel case, ids in hexadecimal, numbers
// of 64 bits as strings.
type (
	tracesData struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resource     `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	resource struct {
		Attributes []keyValue `json:"attributes,omitempty"`
	}
	scopeSpans struct {
		Scope scope  `json:"scope"`
		Spans []span `json:"spans"`
	}
	scope struct {
		Name    string `json:"name"`
		Version string `json:"version,omitempty"`
	}
	span struct {
		TraceID    string     `json:"traceId"`
		SpanID     string     `json:"spanId"`
		TraceState string     `json:"traceState,omitempty"`
		Parent     string     `json:"parentSpanId,omitempty"`
		Name       string     `json:"name"`
		Kind       int        `json:"kind"`
		Start      string     `json:"startTimeUnixNano"`
		End        string     `json:"endTimeUnixNano"`
		Attributes []keyValue `json:"attributes,omitempty"`
		Events     []event    `json:"events,omitempty"`
		Status     status     `json:"status"`
	}
	event struct {
		Time       string     `json:"timeUnixNano"`
		Name       string     `json:"name"`
		Attributes []keyValue `json:"attributes,omitempty"`
	}
	status struct {
		Code    int    `json:"code,omitempty"`
		Message string `json:"message,omitempty"`
	}
	keyValue struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	value struct {
		String *string  `json:"stringValue,omitempty"`
		Int    *string  `json:"intValue,omitempty"`
		Bool   *bool    `json:"boolValue,omitempty"`
		Double *float64 `json:"doubleValue,omitempty"`
	}
)

// request is the body for spans, which all come from one provider and so have
// one resource.
func request(spans []sdk.ReadOnlySpan) tracesData {
	all := resourceSpans{}
	at := make(map[scope]int)
	for i, s := range spans {
		if i == 0 {
			all.Resource.Attributes = attributes(s.Resource().Attributes())
		}
		from := scope{s.InstrumentationScope().Name, s.InstrumentationScope().Version}
		if _, ok := at[from]; !ok {
			at[from] = len(all.ScopeSpans)
			all.ScopeSpans = append(all.ScopeSpans, scopeSpans{Scope: from})
		}
		in := &all.ScopeSpans[at[from]]
		in.Spans = append(in.Spans, spanOf(s))
	}
	return tracesData{[]resourceSpans{all}}
}

func spanOf(s sdk.ReadOnlySpan) span {
	sc := s.SpanContext()
	out := span{
		TraceID: sc.TraceID().String(), SpanID: sc.SpanID().String(), TraceState: sc.TraceState().String(),
		Name: s.Name(), Kind: int(s.SpanKind()), // both count internal, server, client … from 1
		Start: nano(s.StartTime()), End: nano(s.EndTime()),
		Attributes: attributes(s.Attributes()), Status: statusOf(s.Status()),
	}
	if parent := s.Parent().SpanID(); parent.IsValid() {
		out.Parent = parent.String()
	}
	for _, e := range s.Events() {
		out.Events = append(out.Events, event{nano(e.Time), e.Name, attributes(e.Attributes)})
	}
	return out
}

func nano(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

// statusOf translates the codes, which the protocol numbers otherwise.
func statusOf(s sdk.Status) status {
	switch s.Code {
	case codes.Ok:
		return status{Code: 1}
	case codes.Error:
		return status{Code: 2, Message: s.Description}
	}
	return status{}
}

func attributes(all []attribute.KeyValue) []keyValue {
	out := make([]keyValue, 0, len(all))
	for _, kv := range all {
		out = append(out, keyValue{string(kv.Key), valueOf(kv.Value)})
	}
	return out
}

// valueOf is a value as it is, or a list as text.
func valueOf(v attribute.Value) value {
	switch v.Type() {
	case attribute.BOOL:
		b := v.AsBool()
		return value{Bool: &b}
	case attribute.INT64:
		n := strconv.FormatInt(v.AsInt64(), 10)
		return value{Int: &n}
	case attribute.FLOAT64:
		f := v.AsFloat64()
		return value{Double: &f}
	}
	text := v.String()
	return value{String: &text}
}
