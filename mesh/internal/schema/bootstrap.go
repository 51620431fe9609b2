package schema

import (
	_ "embed" // of the example
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

//go:embed bootstrap.json
var bootstrapExample []byte

// named are the objects of the example whose fields have names of the user.
var named = []string{"authorities", "certificate_providers"}

// free are the objects that protobuf or a plugin reads.
var free = []string{"config", "metadata", "dynamic_parameter_constraints"}

// Bootstrap returns the schema of a bootstrap. Its reader tells nobody what it expects, so it is asked: it reads the example with each
// value replaced by one of every other kind, and without each key.
func Bootstrap() ([]byte, error) {
	var example any
	if err := json.Unmarshal(bootstrapExample, &example); err != nil {
		return nil, err
	}
	p := prober{example}
	if errs := p.errors(); len(errs) > 0 {
		return nil, fmt.Errorf("the example has errors: %v", errs)
	}
	schema := p.of("", example, func(v any) { p.example = v })
	schema["$schema"], schema["title"] = "https://json-schema.org/draft/2020-12/schema", "a bootstrap of xDS"
	return json.MarshalIndent(schema, "", "  ")
}

type prober struct{ example any }

// errors returns those of the example as it is now.
func (p *prober) errors() []faults.Fault {
	text, err := json.Marshal(p.example)
	if err != nil {
		panic(err) // impossible: it was made of JSON
	}
	_, err = bootstrap.Parse("", text)
	if several, ok := errors.AsType[*faults.Faults](err); ok {
		return several.List
	}
	return nil
}

// refused reports whether the example has an error of a value of the wrong kind, or of none, at a path.
func (p *prober) refused(path string) bool {
	return slices.ContainsFunc(p.errors(), func(f faults.Fault) bool {
		return f.Path == path && strings.Contains(f.Problem, "expected ") && strings.Contains(f.Problem, ", found ")
	})
}

var samples = []struct {
	kind  string
	value any
}{
	{"null", nil}, {"boolean", true}, {"number", 1.5}, {"string", "a"}, {"array", []any{}}, {"object", object{}},
}

// of returns the schema of a value of the example, which set replaces.
func (p *prober) of(path string, value any, set func(any)) object {
	name := path[strings.LastIndexByte(path, '.')+1:]
	if slices.Contains(free, name) {
		return object{"type": []string{"object", "null"}}
	}
	var types []string
	for _, sample := range samples {
		if sample.kind == kindOf(value) {
			types = append(types, sample.kind)
			continue
		}
		set(sample.value)
		if !p.refused(path) {
			types = append(types, sample.kind)
		}
	}
	set(value)
	schema := object{"type": types}
	switch value := value.(type) {
	case object:
		if slices.Contains(named, name) {
			for key, field := range value {
				schema["additionalProperties"] = p.of(fmt.Sprintf("%s[%q]", path, key), field, func(v any) { value[key] = v })
			}
			return schema
		}
		p.fields(schema, path, value)
	case []any:
		set([]any{})
		if p.refused(path) {
			schema["minItems"] = 1
		}
		set(value)
		schema["items"] = p.of(path+"[0]", value[0], func(v any) { value[0] = v })
	}
	return schema
}

// fields adds those of an object. The reader ignores others.
func (p *prober) fields(schema object, path string, value object) {
	properties, required := object{}, []string{}
	for _, key := range slices.Sorted(maps.Keys(value)) {
		field, at := value[key], faults.Join(path, key)
		properties[key] = p.of(at, field, func(v any) { value[key] = v })
		delete(value, key)
		if p.refused(at) && !slices.Contains(free, key) {
			required = append(required, key)
		}
		value[key] = field
	}
	schema["properties"] = properties
	if len(required) > 0 {
		schema["required"] = required
	}
}

func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case float64:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}
