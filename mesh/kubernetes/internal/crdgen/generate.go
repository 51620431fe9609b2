package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// example has every field of the CRD.
//
//go:embed meshhttproute.yaml
var example []byte

// leftOut are the fields that the reader knows and the CRD does not have, with the reason.
var leftOut = map[string]string{
	"type": kuma, "mesh": kuma, "name": kuma, "labels": kuma, "status": "it is a subresource", "kri": kuma, "creationTime": kuma, "modificationTime": kuma,

	"spec.targetRef.labels": kuma, "spec.targetRef.sectionName": kuma, "spec.targetRef.proxyTypes": kuma,
	"spec.to[].targetRef.labels": kuma, "spec.to[].targetRef.proxyTypes": kuma, "spec.to[].targetRef.tags": "a destination has none",
	"spec.to[].default": kuma, "spec.to[].rules[].default": kuma,

	"spec.to[].rules[].matches[].method": short, "spec.to[].rules[].matches[].path.prefix": short,
	"spec.to[].rules[].matches[].path.exact": short, "spec.to[].rules[].matches[].path.regularExpression": short,
	"spec.to[].rules[].filters[].requestHeader": short, "spec.to[].rules[].filters[].responseHeader": short,

	"spec.to[].rules[].backendRefs[].labels": kuma, "spec.to[].rules[].backendRefs[].sectionName": kuma, "spec.to[].rules[].backendRefs[].tags": noTags,
	"spec.to[].rules[].filters[].requestMirror.backendRef.labels": kuma, "spec.to[].rules[].filters[].requestMirror.backendRef.sectionName": kuma,
	"spec.to[].rules[].filters[].requestMirror.backendRef.tags": noTags,
}

const (
	kuma   = "it is for documents of Kuma"
	short  = "it is another spelling"
	noTags = "endpoints of Kubernetes have no tags"
)

// needed are fields that the reader would do without if others were there that the CRD does not have.
var needed = map[string]string{
	"spec.to[]": "rules", "spec.to[].rules[].backendRefs[]": "name", "spec.to[].rules[].filters[].requestMirror.backendRef": "name",
}

// allowed are the choices of fields of which the CRD does not have all.
var allowed = map[string][]string{
	"spec.to[].rules[].backendRefs[].kind":                      {"MeshService"},
	"spec.to[].rules[].filters[].requestMirror.backendRef.kind": {"MeshService"},
}

// schema is a part of an OpenAPI v3 schema, in the order in which it is written.
type schema struct {
	Description          string             `yaml:"description,omitempty"`
	Type                 string             `yaml:"type"`
	Format               string             `yaml:"format,omitempty"`
	Enum                 []string           `yaml:"enum,omitempty,flow"`
	Pattern              string             `yaml:"pattern,omitempty"`
	MaxLength            int                `yaml:"maxLength,omitempty"`
	Minimum              any                `yaml:"minimum,omitempty"`
	Maximum              any                `yaml:"maximum,omitempty"`
	MinItems             int                `yaml:"minItems,omitempty"`
	Required             []string           `yaml:"required,omitempty,flow"`
	Items                *schema            `yaml:"items,omitempty"`
	Properties           map[string]*schema `yaml:"properties,omitempty"`
	AdditionalProperties *schema            `yaml:"additionalProperties,omitempty"`
}

// generate returns the manifest.
func generate() ([]byte, error) {
	shape, err := document.ShapeOf("meshhttproute.yaml", example, func(doc document.Value, faults *document.Faults) {
		meshpolicy.ParseDocument(doc, faults)
	})
	if err != nil {
		return nil, err
	}
	g := generator{unused: maps.Clone(leftOut)}
	root := g.schema("", shape)
	for path := range g.unused {
		g.fault("%s is left out, though the reader does not know it", path)
	}
	if len(g.faults) > 0 {
		slices.Sort(g.faults)
		return nil, fmt.Errorf("%s", strings.Join(g.faults, "\n"))
	}
	var text bytes.Buffer
	text.WriteString("# Made by \"make generate\": do not edit.\n")
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(definition(root.Properties["spec"])); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// generator makes a schema of what the reader expects.
type generator struct {
	// unused are the paths of leftOut that were not met yet.
	unused map[string]string
	faults []string
}

func (g *generator) fault(format string, args ...any) {
	g.faults = append(g.faults, fmt.Sprintf(format, args...))
}

func (g *generator) schema(path string, s *document.Shape) *schema {
	of := &schema{Description: s.Comment, Required: slices.Clone(s.Required)}
	if name, ok := needed[path]; ok {
		of.Required = append(of.Required, name)
	}
	slices.Sort(of.Required)
	if s.Comment == "" && strings.HasPrefix(path, "spec") && !strings.HasSuffix(path, "]") {
		g.fault("%s has no comment in the example", path)
	}
	switch s.Kind {
	case document.KindObject:
		of.Type = "object"
		if s.Item != nil {
			of.AdditionalProperties = g.schema(path+"[]", s.Item)
			return of
		}
		of.Properties = g.properties(path, s)
	case document.KindList:
		of.Type, of.Items = "array", g.schema(path+"[]", s.Item)
		if s.NonEmpty {
			of.MinItems = 1
		}
	case document.KindText:
		of.Type, of.Enum, of.Pattern, of.MaxLength = "string", s.Choices, s.Pattern, s.MaxLength
		if some, ok := allowed[path]; ok {
			of.Enum = some
		}
	case document.KindNumber:
		of.Type, of.Minimum, of.Maximum = "number", s.Low, s.High
		if s.Whole {
			of.Type, of.Format, of.Minimum, of.Maximum = "integer", "int32", int64(s.Low), int64(s.High)
			if s.High > math.MaxInt32 {
				of.Format = "int64"
			}
		}
	case document.KindBool:
		of.Type = "boolean"
	default:
		g.fault("%s is in the example, and the reader does not look at it", path)
	}
	return of
}

func (g *generator) properties(path string, s *document.Shape) map[string]*schema {
	all := make(map[string]*schema)
	for _, name := range s.Known {
		at := faults.Join(path, name)
		field := s.Fields[name]
		_, out := leftOut[at]
		delete(g.unused, at)
		switch {
		case path == "metadata":
			// It is that of all resources.
		case field == nil && !out:
			g.fault("%s is neither in the example nor left out", at)
		case field != nil && out:
			g.fault("%s is in the example, and left out", at)
		case field != nil:
			all[name] = g.schema(at, field)
		}
	}
	return all
}

// object is for parts of the manifest, whose order does not matter.
type object = map[string]any

// definition returns the manifest with the schema of the spec.
func definition(spec *schema) any {
	condition := object{"type": "object", "required": []string{"type", "status", "reason", "message", "lastTransitionTime"}, "properties": object{
		"type": object{"type": "string"}, "status": object{"type": "string", "enum": []string{"True", "False", "Unknown"}},
		"reason": object{"type": "string"}, "message": object{"type": "string"}, "observedGeneration": object{"type": "integer", "format": "int64"},
		"lastTransitionTime": object{"type": "string", "format": "date-time"},
	}}
	status := object{"type": "object", "description": "What the control plane makes of the policy.", "properties": object{"conditions": object{
		"type": "array", "items": condition, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []string{"type"},
	}}}
	column := func(name, path string) object {
		return object{"name": name, "type": "string", "jsonPath": path}
	}
	group, version, _ := strings.Cut(meshpolicy.APIVersion, "/")
	return object{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   object{"name": "meshhttproutes." + group},
		"spec": object{
			"group": group, "scope": "Namespaced",
			"names": object{"kind": meshpolicy.DocumentKind, "listKind": meshpolicy.DocumentKind + "List", "plural": "meshhttproutes", "singular": "meshhttproute"},
			"versions": []object{{
				"name": version, "served": true, "storage": true,
				"subresources": object{"status": object{}},
				"additionalPrinterColumns": []object{
					column("Accepted", `.status.conditions[?(@.type=="Accepted")].status`), column("Resolved", `.status.conditions[?(@.type=="ResolvedRefs")].status`),
				},
				"schema": object{"openAPIV3Schema": object{
					"type": "object", "required": []string{"spec"},
					"description": "Rules for the requests of some clients to some Services.",
					"properties": object{
						"apiVersion": object{"type": "string"}, "kind": object{"type": "string"}, "metadata": object{"type": "object"},
						"spec": spec, "status": status,
					},
				}},
			}},
		},
	}
}
