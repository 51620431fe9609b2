package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/traffic"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// picker picks by the picker of the priorities, behind the cluster's drops and limit. A cluster without endpoints has no such gate.
type picker struct {
	child balancer.Picker
	// labels are the telemetry labels of all its RPCs.
	labels Labels
	// gate drops and counts RPCs, when their endpoint is known or if none gets one. An RPC that waits is picked for
	// repeatedly, and must be subject to drops only once. gate is nil if no RPC has an endpoint.
	*gate
}

// gate is what an RPC has to pass before it is sent to the endpoint that was picked. It is immutable except for its
// counters.
type gate struct {
	cluster string
	config  *Config // with Cluster and Endpoints
	// registry has the endpoints that RPCs of sessions may ask for.
	registry *conns.Registry

	drops   []drop
	window  *traffic.Window // for retries; nil if they have no budget_interval
	counter *traffic.Counter
	// overload counts the RPCs over the limit for load reports.
	overload *load.Drops
	// dropsAll says that no RPC passes the drops.
	dropsAll bool
}

type drop struct {
	category   string
	perMillion uint32
	reported   *load.Drops
}

func (p *Policy) newGate(c *Config, counter *traffic.Counter) *gate {
	g := &gate{
		cluster: p.env.Cluster, config: c, registry: p.env.Endpoints,
		counter: counter, overload: p.loads.Drops(""), dropsAll: c.Endpoints.DropsAll(),
	}
	if r := c.Cluster.Retries; r != nil {
		g.window = counter.Window(r.Interval)
	}
	for _, d := range c.Endpoints.Drops {
		g.drops = append(g.drops, drop{d.Category, d.PerMillion, p.loads.Drops(d.Category)})
	}
	return g
}

// lets reports whether an RPC may pass the gate, once it has an endpoint.
func (g *gate) lets(d *decision.Decision) bool {
	if g.dropsAll || g.config.Cluster.MaxRequests == 0 {
		return false
	}
	r := g.config.Cluster.Retries
	return r == nil || r.Fixed > 0 || r.Percent > 0 || !d.Retry()
}

// Pick takes no lock. It allocates only for an error, for an authority, for telemetry that
// takes labels, or to combine the child's Done with its own.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	if p.gate == nil {
		p.labels.Set(info.Ctx, nil)
		return p.child.Pick(info)
	}
	d := decision.FromContext(info.Ctx)
	var result balancer.PickResult
	var sc *conns.Conn
	var err error
	if p.gate.lets(d) {
		result, sc, err = p.pick(info, d)
	} else {
		_, err = p.enter(d) // An endpoint is not needed, nor is a connection to one.
	}
	p.labels.Set(info.Ctx, sc)
	return result, err
}

// pick picks an endpoint, and also returns its SubConn. The gate comes second, as the policies may
// have the RPC wait: a ring does, for the endpoint of its hash.
func (p *picker) pick(info balancer.PickInfo, d *decision.Decision) (balancer.PickResult, *conns.Conn, error) {
	ofSession := d != nil && d.Extra != nil && d.Extra.HostOverride != nil
	var result balancer.PickResult
	var err error
	if ofSession {
		result, err = p.pickHost(info, d.Extra.HostOverride.Addresses)
	} else {
		result, err = p.pickOther(info, d)
	}
	if err != nil {
		if err == balancer.ErrNoSubConnAvailable {
			return result, nil, err
		}
		if _, drops := tree.Drops(err); drops { // a policy of the program
			d.Fail(rpctrace.Dropped)
			return result, nil, tree.Explain(err, fmt.Sprintf("dynxds: RPC to cluster %s dropped by its load-balancing policy: ", bounds.Quote(p.cluster)), p.config.Notes)
		}
		d.Fail(rpctrace.Unreachable)
		return result, nil, tree.Explain(err, fmt.Sprintf(
			"dynxds: no endpoint of cluster %s (ClusterLoadAssignment %s) can be reached: ", bounds.Quote(p.cluster), bounds.Quote(p.config.Endpoints.Name)), p.config.Notes)
	}
	sc, ok := result.SubConn.(*conns.Conn)
	if !ok {
		return result, nil, nil // A policy has made it up: gRPC logs that, and picks again.
	}
	if !sc.Begin() {
		giveBack(result)
		return balancer.PickResult{}, nil, balancer.ErrNoSubConnAvailable
	}
	retry, err := p.enter(d)
	if err != nil {
		sc.Abort()
		giveBack(result)
		return balancer.PickResult{}, nil, err
	}
	result.SubConn = sc.Unwrap()
	if d != nil && d.Extra != nil && d.Extra.AutoHost {
		// gRPC checks the authority against the server's certificate, and prefers the authority of grpc.CallAuthority.
		if authority := d.AuthorityFor(sc.Hostname()); authority != "" {
			result.Metadata = metadata.Join(result.Metadata, metadata.Pairs(":authority", authority))
		}
	}
	d.Sent(sc.Address())
	if s := sc.Session(); ofSession && s != nil {
		s.Use()
		d.SetHost(s.Addresses())
	}
	if t := d.Trace(); t != nil {
		p.picked(t, sc)
	}
	end := sc.Ender(p.gate.counter)
	if retry {
		rest := end
		end = func(info balancer.DoneInfo) { p.gate.counter.EndRetry(); rest(info) }
	}
	if done := result.Done; done != nil {
		result.Done = func(info balancer.DoneInfo) { done(info); end(info) }
	} else {
		result.Done = end
	}
	return result, sc, nil
}

// pickHost picks for an RPC of a session, which asks for one of the addresses.
func (p *picker) pickHost(info balancer.PickInfo, addresses []string) (balancer.PickResult, error) {
	switch sc, wait := p.registry.ForSession(addresses); {
	case wait:
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	case sc != nil:
		return balancer.PickResult{SubConn: sc}, nil
	}
	return p.child.Pick(info)
}

// pickOther picks for an RPC without a session. A retry is picked for again while the endpoint is one that the RPC was sent to
// before, as often as the retry policy permits; the last endpoint is taken then.
func (p *picker) pickOther(info balancer.PickInfo, d *decision.Decision) (balancer.PickResult, error) {
	result, err := p.child.Pick(info)
	if err != nil || !d.Retry() || d.Extra.Hosts == nil {
		return result, err
	}
	for range d.Extra.Hosts.Picks {
		if sc, ok := result.SubConn.(*conns.Conn); !ok || !d.Extra.Hosts.Has(sc.Address()) {
			break
		}
		next, err := p.child.Pick(info)
		if err != nil {
			break
		}
		giveBack(result)
		result = next
	}
	return result, nil
}

// giveBack ends a pick that no RPC is sent for, as gRPC does if the connection was closed.
func giveBack(result balancer.PickResult) {
	if result.Done != nil {
		result.Done(balancer.DoneInfo{})
	}
}

// enter returns a status error, which ends any RPC, if this one is dropped. Such an RPC is not
// retried (gRFC A32). retry reports that it was counted as a retry.
func (p *picker) enter(d *decision.Decision) (retry bool, err error) {
	for i := range p.gate.drops {
		share := &p.gate.drops[i]
		if rand.Uint32N(xdsresource.Million) < share.perMillion {
			share.reported.Count()
			return false, p.refuse(d, rpctrace.Dropped, fmt.Sprintf("the control plane drops %d of a million RPCs for %s", share.perMillion, bounds.Quote(share.category)))
		}
	}
	if retry = p.config.Cluster.Retries != nil && d.Retry(); retry {
		if err := p.enterRetry(d); err != nil {
			return false, err
		}
	}
	if !p.gate.counter.Start(p.config.Cluster.MaxRequests) {
		if retry {
			p.gate.counter.EndRetry()
		}
		p.gate.overload.Count()
		return false, p.refuse(d, rpctrace.MaxRequests, fmt.Sprintf("this process has %d RPCs in flight, as many as circuit_breakers.max_requests allows", p.config.Cluster.MaxRequests))
	}
	p.gate.window.Count()
	return retry, nil
}

func (p *picker) refuse(d *decision.Decision, reason rpctrace.Reason, why string) error {
	d.Fail(reason)
	return status.Errorf(codes.Unavailable, "dynxds: RPC to cluster %s dropped: %s", bounds.Quote(p.cluster), why)
}

// picked reports to t that an RPC goes to the endpoint of a SubConn.
func (p *picker) picked(t *rpctrace.Trace, sc *conns.Conn) {
	pick := rpctrace.Pick{Cluster: p.cluster, Endpoint: sc.Address()}
	if l := sc.Locality(); l != nil {
		pick.Region, pick.Zone, pick.SubZone, pick.Priority = l.ID.Region, l.ID.Zone, l.ID.SubZone, l.Priority
	}
	t.Picked(pick)
}

// enterRetry counts an RPC that is a retry, or returns the status error that ends it.
func (p *picker) enterRetry(d *decision.Decision) error {
	limit := p.config.Cluster.Retries
	if p.gate.counter.StartRetry(limit.Fixed, limit.Percent, p.gate.window) {
		return nil
	}
	d.Fail(rpctrace.MaxRetries)
	field := "max_retries"
	if limit.Budget {
		field = "retry_budget"
	}
	return status.Errorf(codes.Unavailable,
		"dynxds: this process has as many retries to cluster %s in flight as circuit_breakers.%s allows", bounds.Quote(p.cluster), field)
}

// Labels are the telemetry labels of all RPCs to a cluster. A pick sets them whatever its result (gRFC A89).
type Labels struct{ service, cluster map[string]string }

// LabelsOf returns the labels of RPCs to a cluster. c may be nil.
func LabelsOf(name string, c *xdsresource.Cluster) Labels {
	service := &xdsresource.Service{Name: "unknown", Namespace: "unknown"}
	if c != nil && c.Service != nil {
		service = c.Service
	}
	return Labels{
		service: map[string]string{"csm.service_name": service.Name, "csm.service_namespace_name": service.Namespace},
		cluster: map[string]string{"grpc.lb.backend_service": name, "grpc.lb.locality": ""},
	}
}

// Set gives an RPC the labels of the cluster after a pick, and, if the pick has found an endpoint, the label of the endpoint's
// locality (gRFC A78). Set calls the RPC's callback twice, as gRPC's own xDS client does: what keeps the last call only has the cluster and
// the locality.
func (l Labels) Set(ctx context.Context, sc *conns.Conn) {
	if !grpcbridge.TakesLabels(ctx) {
		return
	}
	var locality map[string]string
	if sc != nil {
		locality = sc.LocalityLabels()
	}
	grpcbridge.UpdateLabels(ctx, l.service)
	grpcbridge.UpdateLabels(ctx, l.cluster, locality)
}
