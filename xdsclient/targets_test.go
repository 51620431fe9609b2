package xdsclient

import (
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// gRFC A71: "gRPC will use a shared XdsClient instance for each data plane target", so that one which
// needs something new does not take along one that has all it needs.
func TestTargetsFallBackByThemselves(t *testing.T) {
	(&transcriptTest{over: "SotW", servers: []string{"", ""}, then: func(x *transcript) {
		a, b := x.beside(x.c, x.c.ForTarget("A")), x.beside(x.c, x.c.ForTarget("B"))
		meters := make(map[string]*meter)
		for target, y := range map[string]*transcript{"A": a, "B": b} {
			meters[target] = newMeter()
			t.Cleanup(x.c.Attach(target, meters[target]))
			y.run("watch a -> high: stream; high: req a\nhigh: send 1 a=" + target + " -> high: ack 1 a; a = " + target)
		}
		x.run("high: refuse")
		a.run("high: break")
		b.run("high: break\nwait 1s\nlow: streams 0")
		b.run(`watch n -> low: stream; low: req a n
			low: send 1 a=low n=low -> low: ack 1 a n; a = low; n = low`)
		a.run("wait 0s")
		var from []string
		for _, r := range x.c.Dump().Resources {
			from = append(from, r.Name+" of "+serverNamed(r.Server))
		}
		xdstest.Equal(t, "resources in use", []string{"a of high", "a of low", "n of low"}, from)
		xdstest.Equal(t, "servers in use", 2, len(x.c.Dump().Servers))
		for target, want := range map[string]int64{"A": 1, "B": 3} {
			got := int64(0)
			for _, server := range []string{uri(0), uri(1)} {
				got += meters[target].read(t)["resource_updates_valid{"+target+","+server+",envoy.config.cluster.v3.Cluster}"]
			}
			xdstest.Equal(t, "resources that the metrics count for "+target, want, got)
		}
		x.run("low: streams 1")
	}}).run(t)
}

// Targets share the stream to the server of an authority that has only one.
func TestTargetsShareTheOnlyServer(t *testing.T) {
	(&transcriptTest{over: "SotW", servers: []string{"", ""}, then: func(x *transcript) {
		a, b := x.beside(x.c, x.c.ForTarget("A")), x.beside(x.c, x.c.ForTarget("B"))
		const name = "xdstp://single/envoy.config.cluster.v3.Cluster/a"
		a.run("watch one=" + name + " -> low: stream; low: req " + name + `
			low: send 1 [Cluster]{name:"` + name + `",alt_stat_name:"x"} -> low: ack 1 ` + name + "; one = x")
		b.run("watch two=" + name + " -> two = x")
	}, authorities: []testutils.BootstrapOption{testutils.Authority("single", uri(1), nil)}}).run(t)
}
