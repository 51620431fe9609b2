package statuspage

import (
	"runtime"
	"testing"
	"time"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

func TestRates(t *testing.T) {
	at := time.Now()
	old := &reading{at: at, traffic: []balancer.Traffic{{Cluster: "a", Started: 10}, {Cluster: "b", EDSService: "s", Started: 5}, {Cluster: "c", Started: 7}}}
	now := &reading{at: at.Add(2 * time.Second), traffic: []balancer.Traffic{
		{Cluster: "a", Started: 30}, {Cluster: "b", EDSService: "s", Started: 5},
		{Cluster: "c", Started: 4}, // out of use and back
		{Cluster: "new", Started: 3},
	}}
	xdstest.Equal(t, "rates", map[trafficKey]float64{{"a", ""}: 10, {"b", "s"}: 0, {"c", ""}: 2, {"new", ""}: 1.5}, rates(old, now))
}

// The rate of RPCs follows from two readings, and the busiest cluster comes first.
func TestTraffic(t *testing.T) {
	backend := testutils.StartBackend(t, "b")
	_, conn := startChannel(t, "traffic",
		xdsmsg.DefaultListener("service", "routes"), xdsmsg.RouteConfig("routes", "service", xdsmsg.PrefixRoute("", "busy")),
		xdsmsg.EDSCluster("busy", ""), xdsmsg.SimpleEndpoints("busy", backend.Addr()))
	xdstest.NoError(t, call(t, conn))
	h := newHandler()
	first := h.meter.read(0)
	if first.rates != nil {
		t.Errorf("rates of one reading: %v", first.rates)
	}
	for range 5 {
		xdstest.NoError(t, call(t, conn))
	}
	h.refresh = time.Nanosecond
	got := section[trafficList](t, h, "traffic")
	runtime.KeepAlive(first)
	if got.Total != 1 || got.Items[0].Cluster != "busy" || got.Items[0].Rate == nil || *got.Items[0].Rate <= 0 || got.Rate == nil || *got.Rate <= 0 {
		t.Errorf("traffic %+v, want a rate of the cluster busy", got)
	}
	for _, c := range balancer.TrafficByCluster() {
		if c.Cluster == "busy" && c.Started != 6 {
			t.Errorf("%d RPCs were started, want 6", c.Started)
		}
	}
}
