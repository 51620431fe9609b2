package xdsclient

import (
	"net/url"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/testutils"
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
				n, err := parseName(spelling)
				if err != nil || n.text != test.canonical {
					t.Errorf("%s is %q, %v, want %q", spelling, n.text, err, test.canonical)
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
		n, err := parseName(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if other, ok := seen[n.text]; ok {
			t.Errorf("%s and %s are both %s", name, other, n.text)
		}
		seen[n.text] = name
	}
}

func TestPartsOfAName(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		want resourceName
		glob bool
	}{
		{"old/*", resourceName{text: "old/*"}, false},
		{"xdstp:///T/id", resourceName{"xdstp:///T/id", authorityKey{true, ""}, "T"}, false},
		{"xdstp://a%20b/x.T/id?k=/*", resourceName{"xdstp://a%20b/x.T/id?k=/*", authorityKey{true, "a b"}, "x.T"}, false},
		{"xdstp://a/x.T/*", resourceName{"xdstp://a/x.T/*", authorityKey{true, "a"}, "x.T"}, true},
		{"xdstp://a/x.T/dir/*?k=v", resourceName{"xdstp://a/x.T/dir/*?k=v", authorityKey{true, "a"}, "x.T"}, true},
		{"xdstp://a/x.T/dir*", resourceName{"xdstp://a/x.T/dir*", authorityKey{true, "a"}, "x.T"}, false},
	} {
		n, err := parseName(test.name)
		if err != nil || n != test.want || isCollection(n.text) != test.glob {
			t.Errorf("%s is %+v, %v, glob %v, want %+v, %v", test.name, n, err, isCollection(n.text), test.want, test.glob)
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
		{"an old-style name without end", strings.Repeat("a", maxNameLength+1), "longer than 8192 bytes"},
		{"a name that escapes make too long", "xdstp://a/T/" + strings.Repeat(" ", maxNameLength/2), "longer than 8192 bytes"},
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
			n, err := parseName(test.name)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("got %+v, %v, want an error with %q in it", n, err, test.want)
			}
			if got := xdsname.Canonical(test.name); got != test.name {
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
			if parsed, err := parseName(name); err != nil || parsed.text != name {
				t.Fatalf("%s: %+v, %v", name, parsed, err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// gRFC A47, "Watcher Changes": equal names are one cache entry and one
// subscription, under the canonical name; a server may answer with any spelling.
func TestEqualNamesAreOneCacheEntry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, server := newTestTypes(), newScript(t)
		c := server.client(testutils.Authority("a", "", nil))
		const (
			path      = "xdstp://a/envoy.config.cluster.v3.Cluster/"
			canonical = path + "x?k=1&l=2"
			other     = path + "%78?l=2&k=1"
		)
		first, _ := listen(t, c, types.clusters, other)
		second, _ := listen(t, c, types.clusters, canonical)
		s := server.stream()
		check(t, s.request(), want{typ: types.clusters, names: []string{canonical}, node: true})
		for i, spelling := range []string{canonical, other} {
			text := string(rune('1' + i))
			s.send(types.clusters, text, "n"+text, cluster(spelling, text))
			first.cluster(text)
			second.cluster(text)
			s.request()
		}
		s.send(types.clusters, "3", "n3", wrap(t, other, cluster(canonical, "3")))
		first.cluster("3")
		second.cluster("3")
		s.request()
		decoded := types.decoded.Load()
		s.send(types.clusters, "4", "n4", wrap(t, path+"x?l=2&k=1", cluster(canonical, "3")))
		check(t, s.request(), want{typ: types.clusters, names: []string{canonical}, version: "4", nonce: "n4"})
		first.silent()
		if types.decoded.Load() != decoded {
			t.Error("the same bytes under another spelling of the name were decoded again")
		}
		// Full state under another spelling deletes nothing; a name that is
		// none is nobody's.
		s.send(types.clusters, "5", "n5", cluster(other, "5"), cluster("xdstp://a/%zz", "5"))
		first.cluster("5")
		second.cluster("5")
		s.request()
		if n := c.Stats().Unasked; n != 1 {
			t.Errorf("%d resources were dropped, want 1", n)
		}
	})
}

func FuzzName(f *testing.F) {
	for _, name := range []string{
		"", "*", "old", "xdstp://a/T/id", "xdstp:/T/id?b=1&a=2", "xdstp://a/T/%2a?k", "xdstp://%5b/T%2F/%C3%A9/*?=",
		"xdstp://a/T/id#alt=xdstp://b/T/id", "xdstp://a/T/%ED%A0%80", "xdstp://a b/T/ é?%26=%3d&&",
	} {
		f.Add(name, uint8(0))
	}
	f.Fuzz(func(t *testing.T, name string, turn uint8) {
		n, err := parseName(name)
		if err != nil {
			if len(err.Error()) > maxNameLength {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		again, err := parseName(n.text)
		if err != nil || again != n {
			t.Fatalf("%q is %+v, which is %+v, %v", name, n, again, err)
		}
		if len(n.text) > maxNameLength {
			t.Errorf("a name of %d bytes", len(n.text))
		}
		if !n.authority.newStyle {
			if n.text != name {
				t.Errorf("the old-style name %q became %q", name, n.text)
			}
			return
		}
		if equal := respell(n.text, int(turn)); len(equal) <= maxNameLength {
			if same, err := parseName(equal); err != nil || same != n {
				t.Errorf("%q is %+v, %v, but %q is %+v", equal, same, err, n.text, n)
			}
		}
		if u, err := url.Parse(n.text); err == nil && u.Fragment != "" {
			t.Errorf("%q has the fragment %q", n.text, u.Fragment)
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

func TestAuthorityOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, authority string
		ok              bool
	}{
		{"xdstp://a.example.com/type/id?x=y", "a.example.com", true},
		{"xdstp://%61/type/id", "a", true},
		{"xdstp:///type/id", "", true},
		{"xdstp:/type/id", "", true},
		{"old-style", "", false},
		{"", "", false},
		{"xdstp://a", "", false},
		{"xdstp:a/type/id", "", false},
	} {
		if authority, ok := AuthorityOf(tt.name); authority != tt.authority || ok != tt.ok {
			t.Errorf("AuthorityOf(%q) = %q, %v, want %q, %v", tt.name, authority, ok, tt.authority, tt.ok)
		}
	}
}
