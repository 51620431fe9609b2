package e2e_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

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

// A channel from its first request for a Listener over a NACK to idleness.
func TestInspectChannel(t *testing.T) {
	t.Parallel()
	m, backend, service := newMesh(t), testutils.StartBackend(t, "b"), ownService(t)
	m.keepSilent()
	cc := m.dial("xds:///"+service, grpc.WithIdleTimeout(time.Second))
	cc.Connect()
	c := awaitInspect(t, "the channel exists", func() []inspect.Channel { return channels.Inspect() }, func(all []inspect.Channel) bool {
		return slices.ContainsFunc(all, func(c inspect.Channel) bool { return c.Target == "xds:///"+service && c.Config != nil })
	})
	first := inspected(t, service)
	if l := first.Config.Listener; first.Mode != "undecided" || l.Known || l.Name != service || l.Type != "Listener" || first.Config.Version != 0 {
		t.Errorf("before the first answer the channel is %+v, of %d", first, len(c))
	}
	m.serve(service, "c-"+service, backend)
	mustReach(t, cc, unary, backend)
	// An RPC in flight keeps the channel from becoming idle.
	ctx, cancel := context.WithCancel(testutils.Context(t))
	stream, err := openStream(ctx, cc)
	xdstest.NoError(t, err)
	d := inspected(t, service)
	if d.Mode != "xDS" || d.State != inspect.Ready || d.Config == nil || d.Why != "" || d.Since.IsZero() || d.Number == 0 {
		t.Fatalf("in use the channel is %+v", d)
	}
	config := d.Config
	if config.Version == 0 || config.Published.IsZero() || config.Clusters != 1 || config.VirtualHost == "" || config.Error != "" ||
		!config.Listener.Known || config.Routes == nil || !config.Routes.Known || config.Routes.Name != service {
		t.Errorf("in use it is configured by %+v", config)
	}
	if names := d.ClusterNames(); len(names) != 1 || names[0] != "c-"+service {
		t.Errorf("it has the clusters %v", names)
	}
	if _, ok := d.Cluster(ctx, "other"); ok {
		t.Error("it describes a cluster that it does not have")
	}
	if text, err := json.Marshal(d); err != nil || !strings.Contains(string(text), `"target":"xds:///`+service) {
		t.Errorf("as JSON it is %s (%v)", text, err)
	}
	bad := xdsmsg.RouteConfig(service, service)
	bad.VirtualHosts[0].Domains = nil
	m.set(bad)
	awaitInspect(t, "a newer version was NACKed", func() inspect.Channel { return inspected(t, service) }, func(c inspect.Channel) bool {
		return c.Config != nil && c.Config.Routes != nil && c.Config.Routes.Known && strings.Contains(c.Config.Routes.Ambient, "is invalid")
	})
	all := changes.Recent()
	for _, want := range []changes.Kind{changes.Rejected, changes.Accepted} {
		if !slices.ContainsFunc(all, func(c changes.Change) bool {
			return c.Kind == want && c.Type == "RouteConfiguration" && c.Name == service && c.To != "" && c.Server != ""
		}) && len(all) < changes.Max { // else tests in parallel may have made as many
			t.Errorf("the changes do not have %s RouteConfiguration %s: %+v", want, service, all)
		}
	}
	cancel()
	for err == nil {
		_, err = stream.Recv()
	}
	awaitState(t, cc, connectivity.Idle)
	idle := awaitInspect(t, "the channel is idle", func() inspect.Channel { return inspected(t, service) },
		func(c inspect.Channel) bool { return c.Config == nil })
	if idle.State != inspect.Idle || !strings.Contains(idle.Why, "is idle") || idle.Mode != "xDS" {
		t.Errorf("idle, the channel is %+v", idle)
	}
	if names := idle.ClusterNames(); names != nil {
		t.Errorf("idle, it has the clusters %v", names)
	}
	// A description from before the channel was idle has no source any more.
	if _, ok := d.Cluster(testutils.Context(t), "other"); ok {
		t.Error("an old description describes a cluster that it does not have")
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

func TestInspectEjectionAndLimit(t *testing.T) {
	t.Parallel()
	m, service := newMesh(t), ownService(t)
	good, bad := testutils.StartBackend(t, "good"), testutils.StartBackend(t, "bad")
	bad.Fail(status.Error(codes.Internal, "broken"))
	name := "c-" + service
	m.set(chain(service, toCluster(name)), with(ejectFailing(name, 20*time.Millisecond, time.Hour, 50), maxRequests, 3),
		endpointsOf(name, good, bad))
	cc := m.dial("xds:///" + service)
	until(t, cc, "an RPC failed", func(_ string, err error) bool { return status.Code(err) == codes.Internal }, grpc.WaitForReady(true))
	c := awaitCluster(t, "an endpoint is ejected", service, name, func(c inspect.Cluster) bool {
		return len(c.Priorities) == 1 && slices.ContainsFunc(c.Priorities[0].Localities[0].Endpoints,
			func(e inspect.Endpoint) bool { return e.Ejection != nil })
	})
	for _, e := range c.Priorities[0].Localities[0].Endpoints {
		if ejected := e.Addresses[0] == bad.Addr(); ejected != (e.Ejection != nil) {
			t.Errorf("endpoint %v has the ejection %+v", e.Addresses, e.Ejection)
		}
		if x := e.Ejection; x != nil && (x.Multiplier != 1 || x.Until.Sub(x.Since) != time.Hour) {
			t.Errorf("the ejection is %+v, want the first one, of an hour", x)
		}
	}
	before := c.Traffic
	if before == nil || before.Picked == 0 || before.Limit != 3 {
		t.Fatalf("the traffic is %+v", before)
	}
	ctx, cancel := context.WithCancel(testutils.Context(t))
	defer cancel()
	bad.Fail(nil) // RPCs that have a picker from before the ejection may still go there.
	for range 3 {
		_, err := openStream(ctx, cc)
		xdstest.NoError(t, err)
	}
	mustFail(t, cc, "circuit_breakers.max_requests")
	c, _ = inspected(t, service).Cluster(ctx, name)
	if after := c.Traffic; after.Picked != before.Picked+3 || after.InFlight != 3 || after.Refused != 1 {
		t.Errorf("with three streams the traffic is %+v, before it was %+v", after, before)
	}
}

// A channel that DNS configures has no clusters in use.
func TestInspectChannelOnDNS(t *testing.T) {
	t.Parallel()
	directly(t, "the relay is there when the control plane is away")
	m, backend := newMesh(t), testutils.StartBackend(t, "b")
	m.Stop()
	_, target := inZone(t, backend)
	cc := dialWith(t, "xds:///"+target, m.bootstrap(dnsFallback("unavailable")))
	mustReach(t, cc, unary, backend)
	d := inspected(t, target)
	if d.Mode != "DNS" || d.Config == nil || d.Config.Listener.Error == "" || d.Config.Version != 0 || len(d.ClusterNames()) != 0 {
		t.Errorf("the channel is %+v, configured by %+v", d, d.Config)
	}
}
