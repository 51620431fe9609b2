package cluster_test

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

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

// The schema of spec in the CRD is what the reader of policies expects of an example that has every field.
func TestCRD(t *testing.T) {
	t.Parallel()
	const file, example = "../../../../deploy/kubernetes/crd.yaml", "testdata/meshhttproute.yaml"
	shape, err := document.ShapeOf(example, []byte(golden.Read(t, example)), func(doc document.Value, _ *document.Faults) {
		meshpolicy.Read(doc, meshpolicy.DocumentKind, nil)
	})
	xdstest.NoError(t, err)
	g := generator{t: t, unused: maps.Clone(leftOut)}
	var text strings.Builder
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	xdstest.NoError(t, encoder.Encode(g.schema("", shape).Properties["spec"]))
	for path := range g.unused {
		t.Errorf("%s is left out, though the reader does not know it", path)
	}
	const before, after = "\n            spec:\n", "\n            status:\n"
	head, rest, _ := strings.Cut(golden.Read(t, file), before)
	_, tail, _ := strings.Cut(rest, after)
	const indent = "              "
	golden.Check(t, file, head+before+indent+strings.ReplaceAll(strings.TrimSpace(text.String()), "\n", "\n"+indent)+after+tail)
}

// generator makes a schema of what the reader expects.
type generator struct {
	t *testing.T
	// unused are the paths of leftOut that were not met yet.
	unused map[string]string
}

func (g *generator) schema(path string, s *document.Shape) *schema {
	of := &schema{Description: s.Comment, Required: slices.Clone(s.Required)}
	if name, ok := needed[path]; ok {
		of.Required = append(of.Required, name)
	}
	slices.Sort(of.Required)
	if s.Comment == "" && strings.HasPrefix(path, "spec") && !strings.HasSuffix(path, "]") {
		g.t.Errorf("%s has no comment in the example", path)
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
		g.t.Errorf("%s is in the example, and the reader does not look at it", path)
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
			g.t.Errorf("%s is neither in the example nor left out", at)
		case field != nil && out:
			g.t.Errorf("%s is in the example, and left out", at)
		case field != nil:
			all[name] = g.schema(at, field)
		}
	}
	return all
}
