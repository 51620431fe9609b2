package xdsmsg

import (
	"net"
	"strconv"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	aggregatepb "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// EDSCluster is a Cluster of type EDS with policy ROUND_ROBIN. An empty
// serviceName leaves the field unset: the endpoints have the cluster's name.
func EDSCluster(name, serviceName string) *clusterpb.Cluster {
	return &clusterpb.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterpb.Cluster_Type{Type: clusterpb.Cluster_EDS},
		EdsClusterConfig:     &clusterpb.Cluster_EdsClusterConfig{EdsConfig: ADS(), ServiceName: serviceName},
		LbPolicy:             clusterpb.Cluster_ROUND_ROBIN,
	}
}

// InlineCluster is a Cluster of type STATIC, STRICT_DNS or LOGICAL_DNS with
// policy ROUND_ROBIN, whose endpoints are in its load_assignment.
func InlineCluster(name string, kind clusterpb.Cluster_DiscoveryType, localities ...Locality) *clusterpb.Cluster {
	return &clusterpb.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterpb.Cluster_Type{Type: kind},
		LoadAssignment:       Endpoints(name, localities...),
		LbPolicy:             clusterpb.Cluster_ROUND_ROBIN,
	}
}

// AggregateCluster is a Cluster with others under it, the most preferred first.
func AggregateCluster(name string, underlying ...string) *clusterpb.Cluster {
	return &clusterpb.Cluster{
		Name: name,
		ClusterDiscoveryType: &clusterpb.Cluster_ClusterType{ClusterType: &clusterpb.Cluster_CustomClusterType{
			Name: "envoy.clusters.aggregate", TypedConfig: Any(&aggregatepb.ClusterConfig{Clusters: underlying}),
		}},
		LbPolicy: clusterpb.Cluster_CLUSTER_PROVIDED,
	}
}

// Endpoint is one LbEndpoint.
type Endpoint struct {
	// Addr is "host:port". Text of another form is sent as the address,
	// with port 0.
	Addr   string
	Health corepb.HealthStatus
	// Weight is load_balancing_weight; 0 leaves it unset.
	Weight uint32
}

// Locality is one LocalityLbEndpoints.
type Locality struct {
	Region, Zone, SubZone string
	// Weight is load_balancing_weight; 0 leaves it unset, and a gRPC client
	// then ignores the locality.
	Weight    uint32
	Priority  uint32
	Endpoints []Endpoint
}

// In is a locality of weight 1 and priority 0 in the given zone, with healthy
// endpoints.
func In(zone string, addrs ...string) Locality {
	l := Locality{Zone: zone, Weight: 1}
	for _, a := range addrs {
		l.Endpoints = append(l.Endpoints, Endpoint{Addr: a, Health: corepb.HealthStatus_HEALTHY})
	}
	return l
}

// Endpoints is a ClusterLoadAssignment, whose name is its cluster_name.
func Endpoints(name string, localities ...Locality) *endpointpb.ClusterLoadAssignment {
	assignment := &endpointpb.ClusterLoadAssignment{ClusterName: name}
	for _, l := range localities {
		assignment.Endpoints = append(assignment.Endpoints, l.message())
	}
	return assignment
}

// SimpleEndpoints is a ClusterLoadAssignment with one locality of healthy
// endpoints.
func SimpleEndpoints(name string, addrs ...string) *endpointpb.ClusterLoadAssignment {
	return Endpoints(name, In("zone", addrs...))
}

func (l Locality) message() *endpointpb.LocalityLbEndpoints {
	m := &endpointpb.LocalityLbEndpoints{
		Locality:            &corepb.Locality{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone},
		LoadBalancingWeight: optional(l.Weight),
		Priority:            l.Priority,
	}
	for _, e := range l.Endpoints {
		m.LbEndpoints = append(m.LbEndpoints, &endpointpb.LbEndpoint{
			HostIdentifier: &endpointpb.LbEndpoint_Endpoint{
				Endpoint: &endpointpb.Endpoint{Address: Address(e.Addr)},
			},
			HealthStatus:        e.Health,
			LoadBalancingWeight: optional(e.Weight),
		})
	}
	return m
}

// Address is the socket address for "host:port".
func Address(addr string) *corepb.Address {
	host, port, err := net.SplitHostPort(addr)
	number, badPort := strconv.ParseUint(port, 10, 32)
	if err != nil || badPort != nil {
		host, number = addr, 0
	}
	return &corepb.Address{Address: &corepb.Address_SocketAddress{SocketAddress: &corepb.SocketAddress{
		Address:       host,
		PortSpecifier: &corepb.SocketAddress_PortValue{PortValue: uint32(number)},
	}}}
}

func optional(v uint32) *wrapperspb.UInt32Value {
	if v == 0 {
		return nil
	}
	return wrapperspb.UInt32(v)
}
