package cluster

import (
	"slices"

	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// picked reports to t that an RPC goes to an address. It searches the endpoints of the cluster
// for the locality: RPCs without a trace do not pay for an index.
func (p *picker) picked(t *rpctrace.Trace, address string) {
	pick := rpctrace.Pick{Cluster: p.cluster, Endpoint: address}
	if l := localityOf(p.localities, address); l != nil {
		pick.Region, pick.Zone, pick.SubZone, pick.Priority = l.ID.Region, l.ID.Zone, l.ID.SubZone, l.Priority
	}
	t.Picked(pick)
}

// localityOf returns the first locality with an endpoint at the address, or nil: a connection
// that is kept for sessions may be to an endpoint that was removed since.
func localityOf(localities []xdsresource.Locality, address string) *xdsresource.Locality {
	for i := range localities {
		endpoints := localities[i].Endpoints
		for j := range endpoints {
			if endpoints[j].Address == address || slices.Contains(endpoints[j].Additional, address) {
				return &localities[i]
			}
		}
	}
	return nil
}
