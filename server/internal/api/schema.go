package api

import (
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/wire"
)

// schemas holds the schemas of the types of bodies, by name.
type schemas map[string]Object

// ref returns a reference to the schema of a value's type, which it makes if need be.
func (s schemas) ref(v any) Object { return s.of(reflect.TypeOf(v)) }

// of returns the schema of a type. It panics for a type that no body has.
func (s schemas) of(t reflect.Type) Object {
	switch {
	case t == reflect.TypeFor[wire.Millis]():
		return Object{"type": "integer", "minimum": 0}
	case t == reflect.TypeFor[wire.Whole]():
		return Object{"type": "integer"}
	case t == reflect.TypeFor[time.Time]():
		return Object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[Object]():
		return Object{"type": "object"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.Bool:
		return Object{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return Object{"type": "integer"}
	case reflect.String:
		return Object{"type": "string"}
	case reflect.Slice:
		return Object{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return Object{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Struct:
		if s[t.Name()] == nil {
			s[t.Name()] = Object{} // before its fields, which may refer to it
			s[t.Name()] = s.build(t)
		}
		return Object{"$ref": "#/components/schemas/" + t.Name()}
	}
	panic("no schema for " + t.String())
}

// requests are the types of bodies that clients send. Their schemas forbid unknown fields;
// answers may get more fields in later versions.
var requests = []reflect.Type{
	reflect.TypeFor[wire.Acquire](), reflect.TypeFor[wire.Renew](),
	reflect.TypeFor[wire.Renewals](), reflect.TypeFor[wire.Break](),
}

func (s schemas) build(t reflect.Type) Object {
	properties := make(Object)
	for name, f := range members(t) {
		schema := s.of(f.Type)
		maps.Copy(schema, fields()[t.Name()][name])
		properties[name] = schema
	}
	schema := Object{"type": "object", "properties": properties}
	if names := required(t); len(names) > 0 {
		schema["required"] = names
	}
	for _, request := range requests {
		if t == request {
			schema["additionalProperties"] = false
		}
	}
	return schema
}

// members yields the fields of a struct by their names in JSON, including the fields of embedded
// structs.
func members(t reflect.Type) func(yield func(string, reflect.StructField) bool) {
	return func(yield func(string, reflect.StructField) bool) {
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name != "" && !yield(name, f) {
				return
			}
		}
	}
}

// required returns the names of the members that are always present.
func required(t reflect.Type) []string {
	var names []string
	for name, f := range members(t) {
		if _, rest, _ := strings.Cut(f.Tag.Get("json"), ","); rest == "" {
			names = append(names, name)
		}
	}
	return names
}
