package document_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/mesh/internal/document"
)

// What a reader expects of all items of a list is joined: every field of any, and what each of them needs.
func TestShapeOf(t *testing.T) {
	t.Parallel()
	const example = `
# Whose it is,
# in a word.
name: a
items:
- kind: One
  size: 3
- kind: Two
  # A share.
  share: 0.5
  on: true
tags:
  any: x
  other: y
`
	got, err := document.ShapeOf("f.yaml", []byte(example), func(v document.Value, _ *document.Faults) {
		o := v.Object("name", "items", "tags", "more")
		if name := o.Require("name"); !name.Fits(regexp.MustCompile("^[a-c]+$"), 2) || name.Fits(regexp.MustCompile("^[b-c]+$"), 0) || o.Field("more").Fits(regexp.MustCompile(""), 0) {
			t.Error("a name fits another pattern than its own, or a value that is not there fits")
		}
		o.Field("tags").Texts()
		for _, item := range o.Field("items").NonEmpty("a list") {
			o := item.Object("kind", "size", "share", "on")
			if o.Require("kind").OneOf("One", "Two") == "One" {
				o.Require("size").Uint(1, 10)
			}
			o.Field("share").Number(0, 1)
			o.Field("on").Bool()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &document.Shape{
		Kind: document.KindObject, Known: []string{"name", "items", "tags", "more"}, Required: []string{"name"},
		Fields: map[string]*document.Shape{
			"name": {Kind: document.KindText, Comment: "Whose it is, in a word.", Pattern: "^[a-c]+$", MaxLength: 2},
			"tags": {Kind: document.KindObject, Item: &document.Shape{Kind: document.KindText}},
			"items": {Kind: document.KindList, NonEmpty: true, Item: &document.Shape{
				Kind: document.KindObject, Known: []string{"kind", "size", "share", "on"}, Required: []string{"kind"},
				Fields: map[string]*document.Shape{
					"kind":  {Kind: document.KindText, Choices: []string{"One", "Two"}},
					"size":  {Kind: document.KindNumber, Whole: true, Low: 1, High: 10},
					"share": {Kind: document.KindNumber, High: 1, Comment: "A share."},
					"on":    {Kind: document.KindBool},
				},
			}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An example with an error, or that is not one document, has no shape.
func TestShapeOfFaultyExample(t *testing.T) {
	t.Parallel()
	for example, want := range map[string]string{"a: 1\n": "f.yaml:1: a: expected a string", "a: x\n---\na: y\n": "2 documents", "a: [": "not YAML"} {
		_, err := document.ShapeOf("f.yaml", []byte(example), func(v document.Value, _ *document.Faults) { v.Object("a").Field("a").Text() })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want %s", example, err, want)
		}
	}
}
