package xdsname

import "testing"

// The functions that write a name or compare authorities agree with Parse. In an
// authority "!" is written as it is; url.PathEscape makes %21 of it.
func TestNamesOfAnAuthority(t *testing.T) {
	t.Parallel()
	const typeName = "envoy.config.listener.v3.Listener"
	for _, test := range []struct{ authority, prefix string }{
		{"a", "xdstp://a/"},
		{"", "xdstp:///"},
		{"a!b", "xdstp://a!b/"},
		{"a b%/?#", "xdstp://a%20b%25%2F%3F%23/"},
		{"[::1]:8080", "xdstp://[::1]:8080/"},
		{"é&=;@", "xdstp://%C3%A9&=;@/"},
	} {
		if got := AuthorityPrefix(test.authority); got != test.prefix {
			t.Errorf("AuthorityPrefix(%q) = %q, want %q", test.authority, got, test.prefix)
		}
		for id, encoded := range map[string]string{"x": "x", "dir/x": "dir/x", "x;a=b/c": "x;a=b/c", "?#% é[": "%3F%23%25%20%C3%A9%5B"} {
			name := New(test.authority, typeName, id)
			if want := test.prefix + typeName + "/" + encoded; name != want {
				t.Errorf("New(%q, %q) = %q, want %q", test.authority, id, name, want)
			}
			if got := EncodeID(id); got != encoded {
				t.Errorf("EncodeID(%q) = %q, want %q", id, got, encoded)
			}
			want := Name{name, true, test.authority, typeName}
			if got, err := Parse(name); err != nil || got != want {
				t.Errorf("Parse(%q) = %+v, %v, want %+v", name, got, err, want)
			}
			if got, newStyle := Authority(name); got != test.authority || !newStyle {
				t.Errorf("Authority(%q) = %q, %t, want %q, true", name, got, newStyle, test.authority)
			}
		}
	}
}

func TestSpellingsOfAnAuthority(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{"xdstp://a!b/T/x", "xdstp://a%21b/T/y", true},
		{"xdstp://a!b/T/%s", "xdstp://%61%21b/U/y?k=v", true},
		{"xdstp://a!b/T/x", "xdstp://a/T/x", false},
		{"xdstp://A/T/x", "xdstp://a/T/x", false},
		{"xdstp:/T/x", "xdstp:///T/x", true},
		{"xdstp:///T/x", "x", false},
		{"x", "y", true},
		{"a!b", "xdstp://a!b/T/x", false},
		{"xdstp://a%zz/T/x", "xdstp://a%zz/T/y", true}, // in templates, before they are checked
		{"xdstp://a?k=v", "xdstp://a#x", true},
	} {
		if got := SameAuthority(test.a, test.b); got != test.same {
			t.Errorf("SameAuthority(%q, %q) = %t", test.a, test.b, got)
		}
		if got := SameAuthority(test.b, test.a); got != test.same {
			t.Errorf("SameAuthority(%q, %q) = %t", test.b, test.a, got)
		}
	}
	for name, authority := range map[string]string{"xdstp://a!b/T/x": "a!b", "xdstp://a%21b/T/%s": "a!b", "xdstp:///T/x": ""} {
		if !HasAuthority(name, authority) {
			t.Errorf("HasAuthority(%q, %q) = false", name, authority)
		}
	}
	for _, name := range []string{"a", "xdstp:a/T/x", "xdstp://a", "xdstp://a?/T/x", "xdstp://b/T/x", "xdstp:///T/x", "xdstp://a%zz/T/x"} {
		for _, authority := range []string{"a", "a%zz"} {
			if HasAuthority(name, authority) {
				t.Errorf("HasAuthority(%q, %q) = true", name, authority)
			}
		}
	}
}
