package xdsclient

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// ignoringTypes are types whose clusters ignore what their alt_stat_name lists.
func ignoringTypes() *testTypes {
	types := newTestTypes()
	types.clusters.Ignored = func(value any) []Ignored {
		var list []Ignored
		for path := range strings.SplitSeq(value.(*clusterv3.Cluster).GetAltStatName(), ",") {
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

// Of a type each ignored field is said once. What matters is a warning, apart from the rest.
func TestLogOfWhatIsIgnored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, server := ignoringTypes(), newScript(t)
		c := server.client()
		a, b := t.Name()+"-a", t.Name()+"-b"
		for _, name := range []string{a, b} {
			listen(t, c, types.clusters, name)
		}
		s := server.stream()
		for i, step := range []struct {
			when, a, b string
			want       []string
		}{
			{
				when: "resources are taken for the first time", a: "x[1].y,z", b: "x[2].y,z",
				want: []string{`INFO: -a" is in use without: x[1].y: why not; z: why not`},
			},
			{
				when: "more is ignored", a: "x[1].y,q", b: "x[2].y,!w,v",
				want: []string{
					`INFO: -a" is in use without: q: why not`, `WARNING: -b" is in use without: !w: why not`,
					`INFO: -b" is in use without: v: why not`,
				},
			},
			{when: "the same is ignored elsewhere in a resource", a: "q,x[7].y", b: "x[2].y,z"},
			{when: "nothing is ignored any more", a: "-", b: "-"},
			{when: "it is ignored again", a: "q", b: "!w"},
		} {
			infos, warnings := len(logged.After("INFO: ")), len(logged.After("WARNING: "))
			version := fmt.Sprint(i + 1)
			s.send(types.clusters, version, "n"+version, cluster(a, step.a), cluster(b, step.b))
			synctest.Wait()
			var got []string
			for level, lines := range map[string][]string{"INFO: ": logged.After("INFO: ")[infos:], "WARNING: ": logged.After("WARNING: ")[warnings:]} {
				for _, line := range lines {
					if _, text, ok := strings.Cut(line, t.Name()); ok && strings.Contains(text, "in use without") {
						got = append(got, level+text)
					}
				}
			}
			slices.Sort(got)
			slices.Sort(step.want)
			xdstest.Equal(t, step.when+": log", step.want, got)
		}
	})
}

func TestDumpSaysWhatIsIgnored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, server := ignoringTypes(), newScript(t)
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
