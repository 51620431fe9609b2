package xdsname_test

import (
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
)

// TestNames reads testdata/names.txt, which describes its lines.
func TestNames(t *testing.T) {
	t.Parallel()
	const file = "testdata/names.txt"
	var got []string
	for line := range strings.SplitSeq(golden.Read(t, file), "\n") {
		line, _, _ = strings.Cut(line, " -> ")
		if line == "" || strings.HasPrefix(line, "# ") {
			got = append(got, line)
			continue
		}
		name := line
		if unquoted, err := strconv.Unquote(line); err == nil {
			name = unquoted
		}
		got = append(got, line+" -> "+said(t, name))
	}
	golden.Check(t, file, strings.Join(got, "\n"))
}

// said returns what is said of a line.
func said(t *testing.T, line string) string {
	if name, ok := strings.CutPrefix(line, "type "); ok {
		known, err := xdsname.CheckType(name)
		if err != nil {
			return err.Error()
		}
		return map[bool]string{true: "known", false: "unknown"}[known]
	}
	if name, ok := strings.CutPrefix(line, "map "); ok {
		if err := xdsname.CheckConstraintsMap(name); err != nil {
			return err.Error()
		}
		return "good"
	}
	n, err := xdsname.Parse(line)
	if err != nil {
		xdstest.Equal(t, "canonical form of what is no name", line, xdsname.Canonical(line))
		return err.Error()
	}
	xdstest.Equal(t, "canonical form", n.Text, xdsname.Canonical(line))
	authority, newStyle := xdsname.Authority(line)
	if newStyle != n.NewStyle || authority != n.Authority || xdsname.HasAuthority(n.Text, authority) != newStyle {
		t.Errorf("%s: the authority is %q, %v, and to Parse %q", line, authority, newStyle, n.Authority)
	}
	if !n.NewStyle {
		return n.Text
	}
	text := n.Text + ", of " + strconv.Quote(n.Authority) + ", a " + n.Type + ", in " + xdsname.CollectionOf(n.Text)
	if xdsname.IsCollection(n.Text) {
		text += ", a collection"
	}
	return text
}

func TestLongNames(t *testing.T) {
	t.Parallel()
	// The second one is too long when it is escaped.
	for _, name := range []string{strings.Repeat("a", xdsname.MaxLength+1), "xdstp://a/T/" + strings.Repeat(" ", xdsname.MaxLength/2)} {
		if _, err := xdsname.Parse(name); err == nil || !strings.Contains(err.Error(), "longer than 8192 bytes") {
			t.Errorf("got error %v", err)
		}
	}
	const want = `…", which is the type of no resource; did you mean "envoy.config.cluster.v3.Cluster"?`
	if _, err := xdsname.CheckType("envoy." + strings.Repeat("x", 10_000) + ".Cluster"); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got error %v", err)
	}
}

// A watch of a name, and each look at a name in a response, costs no memory where
// there is nothing to change.
func TestCanonicalNamesCostNothing(t *testing.T) {
	for _, name := range []string{
		"outbound|80||echo.example.com",
		"xdstp://xds.example.com/envoy.config.listener.v3.Listener/grpc/echo.example.com:443?env=prod&zone=a",
		"xdstp://xds.example.com/envoy.config.listener.v3.Listener/a%20%C3%A9%25?env=%F0%9F%98%80",
		"xdstp://xds.example.com/envoy.config.listener.v3.Listener/" + strings.Repeat("long/", 20),
	} {
		if n := testing.AllocsPerRun(100, func() {
			if parsed, err := xdsname.Parse(name); err != nil || parsed.Text != name {
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
		n, err := xdsname.Parse(name)
		if err != nil {
			if len(err.Error()) > xdsname.MaxLength {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		again, err := xdsname.Parse(n.Text)
		if err != nil || again != n {
			t.Fatalf("%q is %+v, which is %+v, %v", name, n, again, err)
		}
		if len(n.Text) > xdsname.MaxLength {
			t.Errorf("a name of %d bytes", len(n.Text))
		}
		if !n.NewStyle {
			xdstest.Equal(t, "old-style name", name, n.Text)
			return
		}
		if equal := respell(n.Text, int(turn)); len(equal) <= xdsname.MaxLength {
			if same, err := xdsname.Parse(equal); err != nil || same != n {
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
