package xdsclient

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// gRFC A71: "gRPC will use a shared XdsClient instance for each data plane target", so that one which
// needs something new does not take along one that has all it needs.
func TestTargetsFallBackByThemselves(t *testing.T) {
	overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
		high, low := f[0], f[1]
		c := f.client()
		meters := make(map[string]*meter)
		streams := make(map[string]*scriptStream)
		ears := make(map[string]*ear)
		for _, target := range []string{"A", "B"} {
			meters[target] = newMeter()
			t.Cleanup(c.Attach(target, meters[target]))
			ears[target], _ = listen(t, c.ForTarget(target), types.clusters, "a")
			s := high.asked()
			s.send(types.clusters, "1", "n0", cluster("a", target))
			ears[target].cluster(target)
			s.request()
			streams[target] = s
		}
		high.setRefuse(errRefused)
		for _, s := range streams {
			s.end <- errRefused
		}
		pass(time.Second)
		xdstest.Equal(t, "streams to the lower server, as all is cached", 0, len(low.attempts()))
		n, _ := listen(t, c.ForTarget("B"), types.clusters, "n")
		s := low.asked()
		s.send(types.clusters, "1", "n0", cluster("a", "low"), cluster("n", "low"))
		ears["B"].cluster("low")
		n.cluster("low")
		synctest.Wait()
		var from []string
		for _, r := range c.Dump().Resources {
			from = append(from, r.Name+" of "+serverNamed(r.Server))
		}
		xdstest.Equal(t, "resources in use", []string{"a of high", "a of low", "n of low"}, from)
		xdstest.Equal(t, "servers in use", 2, len(c.Dump().Servers))
		for target, want := range map[string]int64{"A": 1, "B": 3} {
			got := int64(0)
			for _, server := range []string{uri(0), uri(1)} {
				got += meters[target].read(t)["resource_updates_valid{"+target+","+server+",envoy.config.cluster.v3.Cluster}"]
			}
			xdstest.Equal(t, "resources that the metrics count for "+target, want, got)
		}
		xdstest.Equal(t, "streams to the lower server", 1, len(low.attempts()))
	})
}

// Targets share the stream to the server of an authority that has only one.
func TestTargetsShareTheOnlyServer(t *testing.T) {
	overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
		c := f.client(testutils.Authority("single", uri(1), nil))
		const name = "xdstp://single/envoy.config.cluster.v3.Cluster/a"
		one, _ := listen(t, c.ForTarget("A"), types.clusters, name)
		s := f[1].asked()
		s.send(types.clusters, "1", "n0", cluster(name, "x"))
		one.cluster("x")
		two, _ := listen(t, c.ForTarget("B"), types.clusters, name)
		two.cluster("x")
		xdstest.Equal(t, "streams", 1, len(f[1].attempts()))
	})
}
