package e2e_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/changes"
	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// ownService is a service name of the test's own, by which it finds its channel.
func ownService(t testing.TB) string {
	return strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
}

// inspected returns the description of the channel to a service.
func inspected(t testing.TB, service string) inspect.Channel {
	t.Helper()
	for _, c := range channels.Inspect() {
		if c.Target == "xds:///"+service {
			return c
		}
	}
	t.Fatalf("no channel to %s is described", service)
	return inspect.Channel{}
}

// awaitInspect returns once a description is as wanted. It looks again only when changes.Watch reports a change,
// so that it tests the notifications as well.
func awaitInspect[T any](t testing.TB, what string, describe func() T, wanted func(T) bool) T {
	t.Helper()
	ctx := testutils.Context(t)
	changed, stop := changes.Watch()
	defer stop()
	for {
		d := describe()
		if wanted(d) {
			return d
		}
		select {
		case <-changed:
		case <-ctx.Done():
			text, _ := json.MarshalIndent(d, "", "  ")
			t.Fatalf("never: %s; but\n%s", what, text)
		}
	}
}

// awaitCluster is awaitInspect for a cluster of the channel to a service.
func awaitCluster(t testing.TB, what, service, name string, wanted func(inspect.Cluster) bool) inspect.Cluster {
	t.Helper()
	return awaitInspect(t, what, func() inspect.Cluster {
		c, _ := inspected(t, service).Cluster(testutils.Context(t), name)
		return c
	}, wanted)
}

func inUse(number int, s inspect.State) func(inspect.Cluster) bool {
	return func(c inspect.Cluster) bool {
		return number < len(c.Priorities) && c.Priorities[number].Use.InUse && c.Priorities[number].State == s
	}
}

// A failover with the refused connection's error, and back.
func TestInspectFailover(t *testing.T) {
	everyWay(t)
	t.Parallel()
	m, service := newMesh(t), ownService(t)
	primary, secondary := testutils.StartBackend(t, "primary"), testutils.StartBackend(t, "secondary")
	name := "c-" + service
	m.set(chain(service, toCluster(name)), xdsmsg.EDSCluster(name, ""),
		xdsmsg.Endpoints(name, xdsmsg.In("near", primary.Addr()), atPriority1(secondary)))
	cc := m.dial("xds:///" + service)
	mustReach(t, cc, unary, primary)
	c := awaitCluster(t, "priority 0 is in use", service, name, inUse(0, inspect.Ready))
	if c.Phase != inspect.PhaseServing || c.Kind != "EDS" || c.Policy == "" || c.Service != name || livestate.Why(&c) != "priority 0 is in use: ready" {
		t.Errorf("the cluster is %+v", c)
	}
	if len(c.Resources) != 2 || !c.Resources[0].Known || !c.Resources[1].Known {
		t.Errorf("it comes from %+v", c.Resources)
	}
	if use := c.Priorities[1].Use; use.Status != inspect.StatusNotStarted || use.InUse {
		t.Errorf("priority 1: %+v", use)
	}
	e := c.Priorities[0].Localities[0].Endpoints[0]
	if e.Addresses[0] != primary.Addr() || e.State != inspect.Ready || e.Since.IsZero() || e.Error != "" {
		t.Errorf("the endpoint in use is %+v", e)
	}
	primary.Stop()
	untilReached(t, cc, secondary)
	c = awaitCluster(t, "priority 1 is in use as priority 0 is refused", service, name, func(c inspect.Cluster) bool {
		return inUse(1, inspect.Ready)(c) && c.Priorities[0].Use.Status == inspect.StatusFailed
	})
	for _, text := range []string{c.Priorities[0].Use.Error, livestate.PriorityReasons(c.Priorities)[0], c.Priorities[0].Localities[0].Endpoints[0].Error} {
		if !containsAll(text, primary.Addr(), "connection refused") {
			t.Errorf("the failed priority says %q, want the refused connection", text)
		}
	}
	if l := c.Priorities[0].Localities[0]; l.Zone != "near" || l.State != inspect.TransientFailure {
		t.Errorf("the failed locality is %+v", l)
	}
	xdstest.NoError(t, primary.Restart())
	c = awaitCluster(t, "priority 0 is in use again", service, name, inUse(0, inspect.Ready))
	if use := c.Priorities[1].Use; use.Deactivated.IsZero() || use.RetentionEnd.IsZero() {
		t.Errorf("afterwards priority 1 is %+v", use)
	}
}
