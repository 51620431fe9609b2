package cluster

import (
	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// picked reports to t that an RPC goes to the endpoint of a SubConn.
func (p *picker) picked(t *rpctrace.Trace, sc *conns.Conn) {
	pick := rpctrace.Pick{Cluster: p.cluster, Endpoint: sc.Address()}
	if l := sc.Locality(); l != nil {
		pick.Region, pick.Zone, pick.SubZone, pick.Priority = l.ID.Region, l.ID.Zone, l.ID.SubZone, l.Priority
	}
	t.Picked(pick)
}
