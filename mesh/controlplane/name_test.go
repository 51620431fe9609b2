package controlplane

import (
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdsname"
)

// xRFC TP1, "Glob".
func TestKeyOf_Collections(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ member, glob string }{
		{"xdstp://a/T/x", "xdstp://a/T/*"},
		{"xdstp://a/T/d/x", "xdstp://a/T/d/*"},
		{"xdstp://a/T/d/x?b=2&a=1", "xdstp://a/T/d/*?a=1&b=2"},
		{"xdstp://a/T/%64/x", "xdstp://a/T/d/*"},
	} {
		member, glob := keyOf(tt.member), keyOf(tt.glob)
		if member.glob() != glob || member.isGlob() || !glob.isGlob() {
			t.Errorf("%q in %q: %+v, %+v", tt.member, tt.glob, member, glob)
		}
	}
	if keyOf("xdstp://a/T/d/x?a=1").glob() == keyOf("xdstp://a/T/d/*") {
		t.Error("the context parameters of a glob are not matched")
	}
	for _, name := range []string{"*", "foo/*", "xdstp://a/*", "xdstp://a/T/x*", "xdstp://a/T/*#entry=x"} {
		if keyOf(name).isGlob() {
			t.Errorf("%q is a glob", name)
		}
	}
}

// A key has the canonical form of a name in two parts, and no name panics.
func FuzzKeyOf(f *testing.F) {
	for _, name := range []string{
		"", "*", "x", "f%6Fo", "xdstp:", "xdstp://", "xdstp://a/T/x", "xdstp://a/T/d%3Fa=1/x%3Fa=1?b=%31&a", "xdstp:///T/*?b=2&a=%31", "xdstp://a/T/%25/x?%3D=%26&c", "xdstp://a/T/%zz", "xdstp://a/T/x#y",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		key := keyOf(name)
		if key.collection == "" {
			if key.leaf != name {
				t.Fatalf("%q became %q", name, key.leaf)
			}
			return
		}
		path, context, _ := strings.Cut(key.collection, "?")
		text := strings.TrimSuffix(path, wildcardName) + key.leaf
		if context != "" {
			text += "?" + context
		}
		if canonical := xdsname.Canonical(name); text != canonical {
			t.Fatalf("%q: the key %+v is one of %q, want %q", name, key, text, canonical)
		}
		if got := keyOf(key.collection); got != key.glob() {
			t.Fatalf("%q: the collection %q has the key %+v", name, key.collection, got)
		}
	})
}
