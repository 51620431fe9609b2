package cluster

import (
	"fmt"

	"github.com/dynxds/dynxds/balancer/internal/locality"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Describe describes a cluster that has no policy, because no RPC has needed it yet.
func Describe(name string, c *Config) inspect.Cluster {
	d := configured(name, c)
	if d.Phase != inspect.PhaseServing {
		return d
	}
	d.Phase = inspect.PhaseDormant
	if c.Underlying == nil {
		d.Priorities = (*Policy)(nil).inspectPriorities(c.Endpoints)
		return d
	}
	for _, name := range c.Underlying.Names {
		member, _ := c.Underlying.States.Get(name)
		d.Members = append(d.Members, inspect.Member{Use: inspect.Use{Status: inspect.StatusNotStarted}, Cluster: Describe(name, member)})
	}
	return d
}

// configured describes a cluster by its configuration alone, as one whose policy has connections.
func configured(name string, c *Config) inspect.Cluster {
	d := inspect.Cluster{Name: name, State: inspect.Idle}
	if c.Notes != nil {
		d.Notes = c.Notes.String()
	}
	if c.Cluster != nil {
		d.Kind = c.Cluster.Kind.String()
	}
	if c.Cluster != nil && c.Cluster.Kind != xdsresource.ClusterAggregate {
		d.Policy, d.Service = c.Cluster.LBPolicy, c.Cluster.EDSServiceName
	}
	switch {
	case c.Err != nil:
		d.Phase, d.Error, d.State = inspect.PhaseFailed, c.Err.Error(), inspect.TransientFailure
	case c.Underlying != nil && len(c.Underlying.Names) > 0:
		d.Phase = inspect.PhaseServing
	case c.Cluster == nil, c.Endpoints == nil:
		d.Phase = inspect.PhaseResolving
	default:
		d.Phase, d.Service = inspect.PhaseServing, c.Endpoints.Name
	}
	return d
}

// Inspect describes the cluster for diagnostics. It changes nothing.
func (p *Policy) Inspect() inspect.Cluster {
	d := configured(p.env.Cluster, p.config)
	d.State = inspect.State(p.State().ConnectivityState.String())
	if p.gate != nil && p.config.Cluster != nil {
		d.Traffic = &inspect.Traffic{InFlight: p.gate.counter.InFlight()}
	}
	if !p.config.known() {
		return d
	}
	d.Priorities = p.inspectPriorities(p.config.Endpoints)
	if p.err != nil { // no endpoint is usable
		d.Phase, d.Error = inspect.PhaseFailed, p.err.Error()
	} else if p.priorities == nil && !p.gate.dropsAll {
		d.Error = errOnlySessions.Error()
	}
	return d
}

// inspectPriorities describes the priorities of the endpoints. p is nil if the cluster has no
// Policy.
func (p *Policy) inspectPriorities(e *xdsresource.Endpoints) []inspect.Priority {
	groups := byPriority(e.Localities)
	all := make([]inspect.Priority, len(groups))
	for i, localities := range groups {
		all[i] = inspect.Priority{Number: i, State: inspect.Idle, Use: inspect.Use{Status: inspect.StatusNotStarted}}
		all[i].Localities = make([]inspect.Locality, len(localities))
		for j := range localities {
			all[i].Localities[j] = p.inspectLocality(&localities[j])
		}
	}
	if p == nil || p.priorities == nil {
		return all
	}
	for i := range all {
		use, policy := p.priorities.Inspect(i)
		all[i].Use = use
		if child, ok := policy.(*locality.Policy); ok {
			all[i].State = inspect.State(child.State().ConnectivityState.String())
			all[i].Use.Error = lastError(all[i].Localities, child.Failure())
			states := child.States()
			for j := range groups[i] {
				id := groups[i][j].ID
				if p.need.across {
					id = xdsresource.LocalityID{}
				}
				if s, ok := states[id]; ok {
					all[i].Localities[j].State = inspect.State(s.String())
				}
			}
		}
	}
	return all
}

func (p *Policy) inspectLocality(l *xdsresource.Locality) inspect.Locality {
	d := inspect.Locality{
		Region: l.ID.Region, Zone: l.ID.Zone, SubZone: l.ID.SubZone, Weight: l.Weight, State: inspect.Idle,
		Endpoints: make([]inspect.Endpoint, len(l.Endpoints)),
	}
	for i := range l.Endpoints {
		d.Endpoints[i] = p.inspectEndpoint(&l.Endpoints[i])
	}
	return d
}

func (p *Policy) inspectEndpoint(e *xdsresource.Endpoint) inspect.Endpoint {
	d := inspect.Endpoint{
		Addresses: append([]string{e.Address}, e.Additional...), Hostname: e.Hostname, Proxy: e.Proxy,
		Health: e.Health.String(), Weight: e.Weight, State: inspect.Idle,
	}
	if p != nil {
		d.Ejection = p.outliers.Ejection(e)
		p.env.Endpoints.Describe(&d)
	}
	return d
}

// lastError returns why a priority does not work: the failure of its policy, or else the last error of its connections.
func lastError(localities []inspect.Locality, failure error) string {
	if failure != nil {
		return failure.Error()
	}
	var last, past inspect.Endpoint // the latest errors, of those that are not connected and of others
	ejected, total := 0, 0
	for _, l := range localities {
		for _, e := range l.Endpoints {
			latest := &last
			if e.State == inspect.Ready {
				latest = &past
			}
			if e.Error != "" && !e.ErrorTime.Before(latest.ErrorTime) {
				*latest = e
			}
			if e.Ejection != nil {
				ejected++
			}
			total++
		}
	}
	switch {
	case last.Error != "":
		return last.Error
	case ejected > 0:
		return fmt.Sprintf("outlier detection has ejected %d of %d endpoints", ejected, total)
	default:
		return past.Error
	}
}
