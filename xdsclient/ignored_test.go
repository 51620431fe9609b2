package xdsclient

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// ignoringTypes are types whose clusters ignore what their alt_stat_name lists. asked
// counts the times that it was asked what that is.
func ignoringTypes(asked *int) *testTypes {
	types := newTestTypes()
	types.clusters.Ignored = func(_ *anypb.Any, value any, _ <-chan struct{}) []Ignored {
		*asked++
		text := value.(*clusterv3.Cluster).GetAltStatName()
		if text == "mad" {
			panic("out of order")
		}
		var list []Ignored
		for path := range strings.SplitSeq(text, ",") {
			if path != "-" {
				part := Ignored{Path: path, Reason: "why not"}
				if strings.HasPrefix(path, "!") {
					part.Severity = SeverityWarning
				}
				list = append(list, part)
			}
		}
		return list
	}
	return types
}

// Of a type each ignored field is said once, and pushes in a row share a look.
func TestLogOfWhatIsIgnored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		asked := 0
		types, server := ignoringTypes(&asked), newScript(t)
		c := server.client()
		a, b, d := t.Name()+"-a", t.Name()+"-b", t.Name()+"-d"
		for _, name := range []string{a, b, d} {
			listen(t, c, types.clusters, name)
		}
		s := server.stream()
		for i, step := range []struct {
			when    string
			a, b, d string
			wait    time.Duration
			asked   int
			want    []string
		}{
			{
				when: "resources are taken for the first time", a: "x[1].y,z", b: "x[2].y,z", d: "-", wait: time.Second, asked: 3,
				want: []string{`-a" is in use without: x[1].y: why not; z: why not`},
			},
			{when: "another push comes soon", a: "x[1].y", b: "x[2].y,z", d: "-", wait: time.Second},
			{
				when: "yet another one comes and it is time", a: "x[1].y,q", b: "x[2].y,z", d: "w", wait: 10 * time.Second, asked: 2,
				want: []string{`-a" is in use without: q: why not`, `-d" is in use without: w: why not`},
			},
			{when: "the same is ignored elsewhere in a resource", a: "q,x[7].y", b: "x[2].y,z", d: "w", wait: time.Minute, asked: 1},
			{when: "nothing is ignored any more", a: "q,x[7].y", b: "x[2].y,z", d: "-", wait: time.Minute, asked: 1},
			{when: "the same bytes come again", a: "q,x[7].y", b: "x[2].y,z", d: "-", wait: time.Minute},
			{when: "it is ignored again", a: "q,x[7].y", b: "x[2].y,z", d: "w", wait: time.Minute, asked: 1},
			{when: "the type panics", a: "mad", b: "x[2].y,z", d: "w", wait: time.Minute, asked: 1},
		} {
			before := len(logged.After(t.Name()))
			asked = 0
			version := fmt.Sprint(i + 1)
			s.send(types.clusters, version, "n"+version, cluster(a, step.a), cluster(b, step.b), cluster(d, step.d))
			pass(step.wait)
			synctest.Wait()
			xdstest.Equal(t, step.when+": log",
				step.want, append([]string(nil), logged.After(t.Name())[before:]...))
			xdstest.Equal(t, step.when+": how often it asked", step.asked, asked)
		}
		c.Close() // while the log rests
	})
}

// What matters is a warning, apart from the rest, and is said first.
func TestLogOfWhatMatters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		asked, before, warned := 0, len(logged.After("] xDS ")), len(logged.After("WARNING: "))
		types, server := ignoringTypes(&asked), newScript(t)
		c := server.client()
		name := t.Name() + "-a"
		listen(t, c, types.clusters, name)
		server.stream().send(types.clusters, "1", "n1", cluster(name, "!socket,stats"))
		synctest.Wait()
		var got []string
		for _, line := range logged.After("] xDS ")[before:] {
			if strings.Contains(line, name) {
				got = append(got, line)
			}
		}
		want := []string{
			fmt.Sprintf(`Cluster %q is in use without: !socket: why not`, name),
			fmt.Sprintf(`Cluster %q is in use without: stats: why not`, name),
		}
		xdstest.Equal(t, "log", want, got)
		warnings := 0
		for _, line := range logged.After("WARNING: ")[warned:] {
			if strings.Contains(line, name) {
				warnings++
				if !strings.Contains(line, "!socket") || strings.Contains(line, "stats") {
					t.Errorf("warning %q, want one for !socket alone", line)
				}
			}
		}
		xdstest.Equal(t, "warnings", 1, warnings)
	})
}

// The order of the lines is that of names and then types, whatever that of the updates.
func TestOrderOfTheLogOfWhatIsIgnored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		asked, before := 0, len(logged.After("] xDS "))
		types, server := ignoringTypes(&asked), newScript(t)
		types.endpoints.Ignored = func(_ *anypb.Any, value any, _ <-chan struct{}) []Ignored {
			return []Ignored{{Path: value.(*endpointv3.ClusterLoadAssignment).GetClusterName(), Reason: "why not"}}
		}
		c := server.client()
		listen(t, c, types.clusters, "first")
		s := server.stream()
		s.send(types.clusters, "1", "n1", cluster("first", "-"))
		synctest.Wait() // The log rests now, and looks at all that follows at once.
		var want []string
		var clusters, assignments []proto.Message
		for i := range 10 {
			name := fmt.Sprintf("%s-%d", t.Name(), i)
			listen(t, c, types.endpoints, name)
			listen(t, c, types.clusters, name)
			want = append(want, fmt.Sprintf(`Cluster %q`, name), fmt.Sprintf(`ClusterLoadAssignment %q`, name))
			clusters = append(clusters, cluster(name, fmt.Sprint("field", i)))
			assignments = append(assignments, endpoints(name))
		}
		slices.Reverse(clusters)
		s.send(types.endpoints, "1", "n1", assignments...)
		s.send(types.clusters, "2", "n2", append(clusters, cluster("first", "-"))...)
		pass(2 * ignoredRest)
		synctest.Wait()
		var got []string
		for _, line := range logged.After("] xDS ")[before:] {
			if what, _, ok := strings.Cut(line, " is in use without"); ok && strings.Contains(line, t.Name()) {
				got = append(got, what)
			}
		}
		xdstest.Equal(t, "log", want, got)
	})
}

func TestDumpSaysWhatIsIgnored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		asked := 0
		types, server := ignoringTypes(&asked), newScript(t)
		c := server.client()
		listen(t, c, types.clusters, "a")
		listen(t, c, types.clusters, "b")
		listen(t, c, types.endpoints, "e")
		s := server.stream()
		s.send(types.clusters, "1", "n1", cluster("a", "x"))
		s.send(types.endpoints, "1", "n1", endpoints("e"))
		synctest.Wait()
		got := make(map[string][]Ignored)
		for _, r := range c.Dump().Resources {
			got[r.Name] = r.Ignored()
		}
		want := map[string][]Ignored{"a": {{Path: "x", Reason: "why not"}}, "b": nil, "e": nil}
		xdstest.Equal(t, "Ignored", want, got)
	})
}
