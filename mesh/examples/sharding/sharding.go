// Package sharding is a control plane that computes resources on demand: each client is sent one shard
// of a service's endpoints, the one that it asks for by a constraint (xRFC TP2, example "Sharding
// Endpoints for Scalability"). A service of 100,000 endpoints in 1,000 shards costs each client 100 of
// them, and the control plane only the shards that are in use.
//
// A client constrains the dynamic parameter "shard", in its bootstrap file or by
// [github.com/dynxds/dynxds.SetConstraints]:
//
//	"dynamic_parameter_constraints": {
//	  "envoy.config.endpoint.v3.ClusterLoadAssignment": {
//	    "key_constraints": {"shard": {"constraints": [{"value": "2"}]}}
//	  }
//	}
package sharding

import (
	"fmt"
	"log"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/mesh/controlplane"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// assignmentType is the type of the resources with endpoints.
const assignmentType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

// Catalog has the endpoints of services, and computes their shards. It is safe for concurrent use.
type Catalog struct {
	store *controlplane.Store
	// variants are the parameters of the shards.
	variants []dynparam.Parameters

	mu       sync.Mutex
	services map[string][]netip.AddrPort
	// demands are what clients ask for, by service.
	demands map[string]map[*controlplane.Demand]struct{}
}

// NewCatalog makes a catalog the source of the endpoints in a store, which has not been served yet.
func NewCatalog(store *controlplane.Store, shards int) (*Catalog, error) {
	c := &Catalog{
		store: store, services: map[string][]netip.AddrPort{},
		demands: map[string]map[*controlplane.Demand]struct{}{},
	}
	for i := range shards {
		p, err := dynparam.NewParameters(map[string]string{"shard": strconv.Itoa(i)})
		if err != nil {
			return nil, err
		}
		c.variants = append(c.variants, p)
	}
	store.OnDemand(assignmentType, c.demand)
	return c, nil
}

// Set replaces the endpoints of a service. Only clients whose shard changed are sent anything.
func (c *Catalog) Set(service string, endpoints ...netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.services[service] = endpoints
	c.answer(slices.Collect(maps.Keys(c.demands[service])))
}

// demand is called when clients begin to ask for shards, and when the last of them has left.
func (c *Catalog) demand(begun, ended []*controlplane.Demand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range begun {
		if c.demands[d.Name] == nil {
			c.demands[d.Name] = map[*controlplane.Demand]struct{}{}
		}
		c.demands[d.Name][d] = struct{}{}
	}
	for _, d := range ended {
		if delete(c.demands[d.Name], d); len(c.demands[d.Name]) == 0 {
			delete(c.demands, d.Name)
		}
	}
	c.answer(begun)
}

// answer computes the shards for demands. The caller holds c.mu, so that no answer replaces a later one.
func (c *Catalog) answer(demands []*controlplane.Demand) {
	_, err := c.store.Update(func(tx *controlplane.Tx) {
		for _, d := range demands {
			if r, err := c.compute(d); err != nil {
				tx.AnswerError(d, status.Convert(err))
			} else {
				tx.Answer(d, r)
			}
		}
	})
	if err != nil {
		log.Printf("clients are not answered: %v", err)
	}
}

// compute returns the shard that a demand is for, nil if there is none.
func (c *Catalog) compute(d *controlplane.Demand) (*controlplane.Resource, error) {
	endpoints, ok := c.services[d.Name]
	if !ok {
		return nil, nil
	}
	// Of several shards that match, TP2 prefers the largest.
	choice := d.Constraints.Choose(c.variants)
	if choice.Index < 0 {
		return nil, status.Errorf(codes.NotFound, "service %q has shards 0 to %d, none matches %v", d.Name, len(c.variants)-1, d.Constraints)
	}
	packed := new(anypb.Any)
	// Equal shards are to have equal bytes.
	if err := anypb.MarshalFrom(packed, c.shard(d.Name, endpoints, choice.Index), proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, fmt.Errorf("shard %d of %q: %w", choice.Index, d.Name, err)
	}
	return controlplane.NewResource(&discoverypb.Resource{
		Name: d.Name, DynamicParameters: c.variants[choice.Index].Map(), Resource: packed,
	})
}

// shard returns every n-th endpoint of a service.
func (c *Catalog) shard(service string, endpoints []netip.AddrPort, shard int) *endpointpb.ClusterLoadAssignment {
	locality := &endpointpb.LocalityLbEndpoints{Locality: &corepb.Locality{}}
	for i := shard; i < len(endpoints); i += len(c.variants) {
		locality.LbEndpoints = append(locality.LbEndpoints, endpointAt(endpoints[i]))
	}
	return &endpointpb.ClusterLoadAssignment{ClusterName: service, Endpoints: []*endpointpb.LocalityLbEndpoints{locality}}
}

func endpointAt(at netip.AddrPort) *endpointpb.LbEndpoint {
	address := &corepb.SocketAddress{
		Address:       at.Addr().String(),
		PortSpecifier: &corepb.SocketAddress_PortValue{PortValue: uint32(at.Port())},
	}
	return &endpointpb.LbEndpoint{HostIdentifier: &endpointpb.LbEndpoint_Endpoint{Endpoint: &endpointpb.Endpoint{
		Address: &corepb.Address{Address: &corepb.Address_SocketAddress{SocketAddress: address}},
	}}}
}
