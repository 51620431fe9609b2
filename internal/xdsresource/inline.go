package xdsresource

import (
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/dynxds/dynxds/internal/faults"
)

// inline decodes load_assignment. Unlike one that EDS sends it need not name
// localities nor weigh them: it is written for Envoy, which asks for neither.
func (d clusterDecoder) inline(pb *clusterpb.Cluster, c *Cluster) {
	at, assignment := faults.Field("load_assignment"), pb.GetLoadAssignment()
	switch {
	case assignment == nil:
		d.fault(at, "must be set in a cluster of type %v", c.Kind)
		return
	case c.Kind == ClusterLogicalDNS:
		c.Inline = d.logicalDNS(at, assignment)
	default:
		c.Inline = assignmentOf(d.validator, at, assignment, c.Kind)
	}
	c.Inline.Name = c.Name
}

// logicalDNS decodes the load_assignment of a cluster of type LOGICAL_DNS. Its
// locality has no name, its endpoint the name that is resolved as hostname
// (gRFC A37, "Validation" and "xds_cluster_resolver_experimental LB Policy"; gRFC
// A81, "xDS Resource Validation").
func (d clusterDecoder) logicalDNS(at *faults.Path, pb *endpointpb.ClusterLoadAssignment) *Endpoints {
	e := &Endpoints{Drops: d.drops(at.Field("policy"), pb.GetPolicy().GetDropOverloads())}
	if n := len(pb.GetEndpoints()); n != 1 {
		d.fault(at.Field("endpoints"), "must have exactly one entry in a cluster of type LOGICAL_DNS, has %d", n)
		return e
	}
	at = at.Item("endpoints", 0)
	endpoints := pb.GetEndpoints()[0].GetLbEndpoints()
	if n := len(endpoints); n != 1 {
		d.fault(at.Field("lb_endpoints"), "must have exactly one entry in a cluster of type LOGICAL_DNS, has %d", n)
		return e
	}
	l := endpointDecoder{validator: d.validator, kind: ClusterLogicalDNS, addresses: make(map[string]position)}
	endpoint := l.endpoint(at.Item("lb_endpoints", 0), position{}, endpoints[0])
	endpoint.Hostname, endpoint.Weight = endpoint.Address, 1
	e.Localities = []Locality{{Weight: 1, Endpoints: []Endpoint{endpoint}}}
	return e
}

// defaultRefreshRate is that of Envoy (Cluster.dns_refresh_rate).
const defaultRefreshRate = 5 * time.Second

// dns decodes how names are to be resolved.
func (d clusterDecoder) dns(pb *clusterpb.Cluster, c *Cluster) {
	switch family := pb.GetDnsLookupFamily(); family {
	case clusterpb.Cluster_AUTO, clusterpb.Cluster_ALL:
		c.AddressFamily = FamilyAny
	case clusterpb.Cluster_V4_ONLY:
		c.AddressFamily = FamilyV4
	case clusterpb.Cluster_V6_ONLY:
		c.AddressFamily = FamilyV6
	case clusterpb.Cluster_V4_PREFERRED:
		c.AddressFamily = FamilyV4Preferred
	default:
		d.fault(faults.Field("dns_lookup_family"), "unknown family %v; this client knows AUTO, ALL, V4_ONLY, V6_ONLY and V4_PREFERRED", family)
	}
	if c.Kind != ClusterStrictDNS {
		return
	}
	c.RefreshRate = defaultRefreshRate
	//lint:ignore SA1019 control planes still send it
	if rate := pb.GetDnsRefreshRate(); rate != nil {
		at := faults.Field("dns_refresh_rate")
		before := d.faults.Total()
		c.RefreshRate = d.duration(at, rate)
		if c.RefreshRate <= time.Millisecond && d.faults.Total() == before {
			d.fault(at, "must be more than 1ms, is %v", c.RefreshRate)
		}
	}
}
