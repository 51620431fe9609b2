package controlplane

import "testing"

// xRFC TP1, "URI-based xDS resource names" and "Normalization".
func TestKeyOf_EqualNames(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		a, b  string
		equal bool
	}{
		{"order of context parameters", "xdstp://a/T/x?b=2&a=1", "xdstp://a/T/x?a=1&b=2", true},
		{"percent-encoding of the path", "xdstp://a/T/f%6Fo/b%61r", "xdstp://a/T/foo/bar", true},
		{"percent-encoding of authority and type", "xdstp://%61/%54/x", "xdstp://a/T/x", true},
		{"percent-encoding of parameters", "xdstp://a/T/x?%61=%31", "xdstp://a/T/x?a=1", true},
		{"case of percent-encoding", "xdstp://a/T/%c3%bc", "xdstp://a/T/%C3%BC", true},
		{"no parameters at all", "xdstp://a/T/x?", "xdstp://a/T/x", true},
		{"superfluous separators", "xdstp://a/T/x?&a=1&&b=2&", "xdstp://a/T/x?a=1&b=2", true},
		{"the last of several values counts", "xdstp://a/T/x?a=1&a=2", "xdstp://a/T/x?a=2", true},
		{"no value is the empty value", "xdstp://a/T/x?a", "xdstp://a/T/x?a=", true},
		{"an encoded glob", "xdstp://a/T/x/%2A", "xdstp://a/T/x/*", true},
		{"no authority is an empty one", "xdstp:/T/x", "xdstp:///T/x", true},
		{"characters that need no escape", "xdstp://a%21b/T/x", "xdstp://a!b/T/x", true},

		{"other value", "xdstp://a/T/x?a=1", "xdstp://a/T/x?a=2", false},
		{"other authority", "xdstp://a/T/x", "xdstp://b/T/x", false},
		{"no authority", "xdstp:///T/x", "xdstp://a/T/x", false},
		{"other type", "xdstp://a/T/x", "xdstp://a/U/x", false},
		{"type and path are apart", "xdstp://a/T%2Fx/y", "xdstp://a/T/x/y", false},
		{"authority and type are apart", "xdstp://a%2Fb/T/x", "xdstp://a/b/T/x", false},
		{"path and parameters are apart", "xdstp://a/T/x%3Fa=1", "xdstp://a/T/x?a=1", false},
		{"directory and parameters are apart", "xdstp://a/T/d%3Fa=1/x", "xdstp://a/T/d/x?a=1", false},
		{"parameters are apart", "xdstp://a/T/x?a=1%26b=2", "xdstp://a/T/x?a=1&b=2", false},
		{"key and value are apart", "xdstp://a/T/x?a%3D1=2", "xdstp://a/T/x?a=1%3D2", false},
		{"encoded percent", "xdstp://a/T/%2561", "xdstp://a/T/a", false},
		{"plus is no space", "xdstp://a/T/x?a=+", "xdstp://a/T/x?a=%20", false},
		{"leading slash of the path", "xdstp://a/T//x", "xdstp://a/T/x", false},
		{"trailing slash of the path", "xdstp://a/T/x/", "xdstp://a/T/x", false},
		{"old-style names are not decoded", "f%6Fo", "foo", false},
		{"old-style parameters are not sorted", "x?b=2&a=1", "x?a=1&b=2", false},
		{"malformed escape", "xdstp://a/T/%zz?b=2&a=1", "xdstp://a/T/%zz?a=1&b=2", false},
		{"malformed escape in parameters", "xdstp://a/T/x?b=%z&a=1", "xdstp://a/T/x?a=1&b=%z", false},
		{"no path", "xdstp://a/%54", "xdstp://a/T", false},
		{"directive", "xdstp://a/T/%61#entry=x", "xdstp://a/T/a#entry=x", false},
	}
	for _, tt := range tests {
		if got := keyOf(tt.a) == keyOf(tt.b); got != tt.equal {
			t.Errorf("%s: %q and %q are equal: %t, want %t (%+v, %+v)", tt.name, tt.a, tt.b, got, tt.equal, keyOf(tt.a), keyOf(tt.b))
		}
	}
}

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
	for _, name := range []string{"*", "foo/*", "xdstp://a/*", "xdstp://a/T/x*", "xdstp://a/T/*#entry=x"} {
		if keyOf(name).isGlob() {
			t.Errorf("%q is a glob", name)
		}
	}
}

// A key made of its own canonical form is the same key, and no name panics.
func FuzzKeyOf(f *testing.F) {
	for _, name := range []string{
		"", "*", "x", "xdstp:", "xdstp://", "xdstp://a/T/x", "xdstp:///T/*?b=2&a=%31", "xdstp://a/T/%25/x?%3D=%26&c", "xdstp://a/T/%zz", "xdstp://a/T/x#y",
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
		if got := keyOf(key.collection); got != key.glob() {
			t.Fatalf("%q: the collection %q has the key %+v", name, key.collection, got)
		}
	})
}
