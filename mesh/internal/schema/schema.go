// Package schema makes the JSON Schemas of the documents of a folder and of bootstraps, for editors, out of what the readers expect of
// examples. They accept what the readers accept; of values that depend on each other they do not know.
package schema

import (
	_ "embed" // of the examples
	"encoding/json"
	"slices"

	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/folder"
)

var (
	//go:embed service.yaml
	service []byte
	//go:embed resource.yaml
	resource []byte
	//go:embed meshhttproute.yaml
	meshHTTPRoute []byte
)

// kinds are the documents whose fields the schema has. Those of the other kinds are Kubernetes' own, with schemas of their own.
var kinds = []struct {
	name    string
	example []byte
}{{"Service", service}, {"Resource", resource}, {"MeshHTTPRoute", meshHTTPRoute}}

type object = map[string]any

// Folder returns the schema of a document of a folder.
func Folder() ([]byte, error) {
	var byKind []any
	var names []string
	for _, kind := range kinds {
		shape, err := folder.ShapeOf(kind.name, kind.example)
		if err != nil {
			return nil, err
		}
		names = shape.Fields["kind"].Choices
		byKind = append(byKind, object{
			"if":   object{"required": []string{"kind"}, "properties": object{"kind": object{"const": kind.name}}},
			"then": of(shape),
		})
	}
	return json.MarshalIndent(object{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "a document of the folder of dynxds serve",
		"type": "object", "properties": object{"kind": object{"enum": names}}, "allOf": byKind,
	}, "", "  ")
}

// of returns the schema of a value. A field that is null counts as absent.
func of(s *document.Shape) object {
	if s == nil {
		return object{}
	}
	switch s.Kind {
	case document.KindObject:
		return ofObject(s)
	case document.KindList:
		list := object{"type": "array", "items": of(s.Item)}
		if s.NonEmpty {
			list["minItems"] = 1
		}
		return list
	case document.KindText:
		text := object{"type": "string"}
		if len(s.Choices) > 0 {
			text["enum"] = s.Choices
		}
		return text
	case document.KindNumber:
		if !s.Whole {
			return object{"type": []string{"number", "string"}, "minimum": s.Low, "maximum": s.High}
		}
		return object{"type": "integer", "minimum": s.Low, "maximum": s.High}
	case document.KindBool:
		return object{"type": "boolean"}
	}
	return object{}
}

func ofObject(s *document.Shape) object {
	if len(s.Known) == 0 {
		return object{"type": "object", "additionalProperties": of(s.Item)}
	}
	properties := object{}
	for _, name := range s.Known {
		field := of(s.Fields[name])
		if len(field) > 0 && !slices.Contains(s.Required, name) {
			field = object{"anyOf": []any{field, object{"type": "null"}}}
		}
		properties[name] = field
	}
	all := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(s.Required) > 0 {
		all["required"] = s.Required
	}
	return all
}
