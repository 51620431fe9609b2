package xdsname

import (
	"net/url"
	"strings"
	"testing"
)

// xRFC TP1, "Normalization": names are equal if their parts are, whatever the
// order of context parameters. gRFC A47, "Resource Cache": context parameters are
// sorted by key; of duplicates the last counts.
func TestEqualNamesHaveOneSpelling(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		canonical string
		spellings []string
	}{
		{
			"order of context parameters", "xdstp://a/T/id?a=1&b=2&c=3",
			[]string{"xdstp://a/T/id?c=3&b=2&a=1", "xdstp://a/T/id?b=2&c=3&a=1", "xdstp://a/T/id?&a=1&&b=2&c=3&"},
		},
		{
			"duplicate context parameters", "xdstp://a/T/id?a=1&b=2",
			[]string{"xdstp://a/T/id?b=2&a=7&a=1", "xdstp://a/T/id?a=7&b=2&%61=1"},
		},
		{
			"parameters without a value", "xdstp://a/T/id?a=&b=2",
			[]string{"xdstp://a/T/id?b=2&a", "xdstp://a/T/id?a&b=2"},
		},
		{"no context parameters", "xdstp://a/T/id", []string{"xdstp://a/T/id?", "xdstp://a/T/id?&"}},
		{
			"escapes without need", "xdstp://a.b/T/some/id?k=v",
			[]string{"xdstp://%61.b/T/some/id?k=v", "xdstp://a%2eb/%54/some%2Fid?%6b=%76", "xdstp://a%2Eb/T/some%2fid?k=v"},
		},
		{
			"escapes in need", "xdstp://a%20b/T/%25%3F%23%5B%20/%C3%A9?k%26=%3D%20%23",
			[]string{"xdstp://a b/T/%25%3f%23[ /é?k%26=%3d %23", "xdstp://a%20b/T/%25%3F%23%5B%20/%c3%a9?k%26=%3D%20%23"},
		},
		{
			"characters that need no escape", "xdstp://[::1]:8080/T/a:@!$&'()*+,;=-._~/b?k/?:@=!$'()*+,;-._~/?",
			[]string{"xdstp://%5B::1%5D:8080/T/a%3A%40%21%24%26%27%28%29%2A%2B%2C%3B%3D-._~/b?k%2F%3F:@=%21$'()*+,;-._~/?"},
		},
		{"sorted as they are read, not as they are written", "xdstp://a/T/id?%20=1&!=2&a=3", []string{"xdstp://a/T/id?!=2&%20=1&a=3"}},
		{"no authority", "xdstp:///T/id", []string{"xdstp:/T/id"}},
		{"a collection", "xdstp://a/T/dir/*?k=v", []string{"xdstp://a/T/dir/%2A?k=v"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, spelling := range append(test.spellings, test.canonical) {
				n, err := Parse(spelling)
				if err != nil || n.Text != test.canonical {
					t.Errorf("%s is %q, %v, want %q", spelling, n.Text, err, test.canonical)
				}
			}
		})
	}
}

// xRFC TP1, "Normalization": names differ if a part does.
func TestDifferentNamesStayDifferent(t *testing.T) {
	t.Parallel()
	names := []string{
		"a", "xdstp", "XDSTP://a/T/id", "%61", // old-style, untouched
		"xdstp:///T/id", "xdstp://a/T/id", "xdstp://A/T/id", "xdstp://a/t/id", "xdstp://a/T/ID", "xdstp://a/T/id/",
		"xdstp://a/T%2Fid/id", "xdstp://a/T/id?k=v", "xdstp://a/T/id?k=V", "xdstp://a/T/id?K=v", "xdstp://a/T/id?k=v&l=",
		"xdstp://a/T/id?k=v%26l=", "xdstp://a/T/id%3Fk=v", "xdstp://a/T/id%2520", "xdstp://a/T/id%20", "xdstp://a/T/id+",
		"xdstp://a/T/../id", "xdstp://a/T//id",
	}
	seen := make(map[string]string)
	for _, name := range names {
		n, err := Parse(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if other, ok := seen[n.Text]; ok {
			t.Errorf("%s and %s are both %s", name, other, n.Text)
		}
		seen[n.Text] = name
	}
}

func TestPartsOfAName(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		want Name
		glob bool
	}{
		{"old/*", Name{Text: "old/*"}, false},
		{"xdstp:///T/id", Name{"xdstp:///T/id", true, "", "T"}, false},
		{"xdstp://a%20b/x.T/id?k=/*", Name{"xdstp://a%20b/x.T/id?k=/*", true, "a b", "x.T"}, false},
		{"xdstp://a/x.T/*", Name{"xdstp://a/x.T/*", true, "a", "x.T"}, true},
		{"xdstp://a/x.T/dir/*?k=v", Name{"xdstp://a/x.T/dir/*?k=v", true, "a", "x.T"}, true},
		{"xdstp://a/x.T/dir*", Name{"xdstp://a/x.T/dir*", true, "a", "x.T"}, false},
	} {
		n, err := Parse(test.name)
		if err != nil || n != test.want || IsCollection(n.Text) != test.glob {
			t.Errorf("%s is %+v, %v, glob %v, want %+v, %v", test.name, n, err, IsCollection(n.Text), test.want, test.glob)
		}
	}
}

// A name that a server could only misunderstand is refused, and the error says
// what is wrong with it: all of it.
func TestMalformedNames(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ given, name, want string }{
		{"nothing", "", "a resource needs a name"},
		{"the wildcard", "*", `"*" asks for every resource`},
		{"an old-style name that is no UTF-8", "\xff", "not valid UTF-8"},
		{"an old-style name without end", strings.Repeat("a", MaxLength+1), "longer than 8192 bytes"},
		{"a name that escapes make too long", "xdstp://a/T/" + strings.Repeat(" ", MaxLength/2), "longer than 8192 bytes"},
		{"no slashes", "xdstp:id", "found no //"},
		{"an authority alone", "xdstp://a", "found no type"},
		{"no type", "xdstp://a//id", "found no type"},
		{"no id", "xdstp://a/T", "found no id"},
		{"an empty id", "xdstp://a/T/?k=v", "found no id"},
		{"a cut escape", "xdstp://a/T/%4", `id: invalid URL escape "%4"`},
		{"a false escape", "xdstp://a/T/id?k=%GG", `context parameters: invalid URL escape "%GG"`},
		{"raw bytes that are no UTF-8", "xdstp://a/T/\xff", "id: not valid UTF-8"},
		{"escapes that are no UTF-8", "xdstp://%C3/T/id", "authority: not valid UTF-8"},
		{"half a surrogate", "xdstp://a/T/%ED%A0%80", "id: not valid UTF-8"},
		{"an overlong character", "xdstp://a/T/%C0%AF", "id: not valid UTF-8"},
		{"a parameter without a key", "xdstp://a/T/id?=v", "there is one without a key"},
		{"several faults", "xdstp://%zz/%C3/%4?=v", `authority: invalid URL escape "%zz"; type: not valid UTF-8; id: invalid URL escape "%4"; context parameters: there is one without a key`},
		// xRFC TP1, "URI-based xDS resource names": directives belong to
		// locators; gRFC A47, "Background": alt is not supported.
		{"an alternative", "xdstp://a/T/id#alt=xdstp://b/T/id", "alt is not supported"},
		{"an entry", "xdstp://a/T/id#entry=x", "entry is not supported"},
		{"both", "xdstp://a/T/id#entry=x,alt=xdstp://b/T/id", "entry is not supported"},
		{"an unknown directive", "xdstp://a/T/id#go=there", `the directive "go" is unknown`},
		{"an empty fragment", "xdstp://a/T/id#", "no # and no directives"},
	} {
		t.Run(test.given, func(t *testing.T) {
			t.Parallel()
			n, err := Parse(test.name)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("got %+v, %v, want an error with %q in it", n, err, test.want)
			}
			if got := Canonical(test.name); got != test.name {
				t.Errorf("Canonical makes %q of what is no name", got)
			}
		})
	}
}

// A watch of a name, and each look at a name in a response, costs no memory where
// there is nothing to change.
func TestCanonicalNamesCostNothing(t *testing.T) {
	for _, name := range []string{
		"outbound|80||echo.example.com",
		"xdstp://xds.example.com/envoy.config.listener.v3.Listener/grpc/echo.example.com:443?env=prod&zone=a",
		"xdstp://xds.example.com/envoy.config.listener.v3.Listener/a%20%C3%A9%25?env=%F0%9F%98%80",
	} {
		if n := testing.AllocsPerRun(100, func() {
			if parsed, err := Parse(name); err != nil || parsed.Text != name {
				t.Fatalf("%s: %+v, %v", name, parsed, err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func FuzzName(f *testing.F) {
	for _, name := range []string{
		"", "*", "old", "xdstp://a/T/id", "xdstp:/T/id?b=1&a=2", "xdstp://a/T/%2a?k", "xdstp://%5b/T%2F/%C3%A9/*?=",
		"xdstp://a/T/id#alt=xdstp://b/T/id", "xdstp://a/T/%ED%A0%80", "xdstp://a b/T/ é?%26=%3d&&",
	} {
		f.Add(name, uint8(0))
	}
	f.Fuzz(func(t *testing.T, name string, turn uint8) {
		n, err := Parse(name)
		if err != nil {
			if len(err.Error()) > MaxLength {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		again, err := Parse(n.Text)
		if err != nil || again != n {
			t.Fatalf("%q is %+v, which is %+v, %v", name, n, again, err)
		}
		if len(n.Text) > MaxLength {
			t.Errorf("a name of %d bytes", len(n.Text))
		}
		if !n.NewStyle {
			if n.Text != name {
				t.Errorf("the old-style name %q became %q", name, n.Text)
			}
			return
		}
		if equal := respell(n.Text, int(turn)); len(equal) <= MaxLength {
			if same, err := Parse(equal); err != nil || same != n {
				t.Errorf("%q is %+v, %v, but %q is %+v", equal, same, err, n.Text, n)
			}
		}
		if u, err := url.Parse(n.Text); err == nil && u.Fragment != "" {
			t.Errorf("%q has the fragment %q", n.Text, u.Fragment)
		}
	})
}

// respell writes a canonical name in another way: escapes in small letters, the
// parameters turned around, and one character escaped without need.
func respell(name string, turn int) string {
	path, context, hasContext := strings.Cut(name, "?")
	if i := strings.LastIndexByte(path, '/') + 1; i < len(path) && path[i] != '%' {
		path = path[:i] + "%" + string("0123456789abcdef"[path[i]>>4]) + string("0123456789abcdef"[path[i]&15]) + path[i+1:]
	}
	if !hasContext {
		return path
	}
	parameters := strings.Split(context, "&")
	turn %= len(parameters)
	return path + "?" + strings.Join(append(parameters[turn:len(parameters):len(parameters)], parameters[:turn]...), "&")
}
