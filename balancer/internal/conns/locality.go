package conns

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/dynxds/dynxds/internal/xdsresource"
)

const labelLocality = "grpc.lb.locality"

// Locality has the telemetry label grpc.lb.locality of endpoints (gRFC A78, "Optional xDS
// Locality Label"). A nil Locality has none. Labels and Name are for any goroutine.
type Locality struct {
	labels map[string]string
	// byAddress is for policies that pick across localities.
	byAddress atomic.Pointer[map[string]*Locality]
}

// NewLocality returns the Locality of endpoints that are all in the one of the given ID.
func NewLocality(id xdsresource.LocalityID) *Locality {
	text := fmt.Sprintf("{region=%q, zone=%q, sub_zone=%q}", id.Region, id.Zone, id.SubZone)
	return &Locality{labels: map[string]string{labelLocality: text}}
}

// Set replaces what is known of endpoints in several localities.
func (l *Locality) Set(localities []xdsresource.Locality) {
	byAddress := make(map[string]*Locality)
	for i := range localities {
		here := NewLocality(localities[i].ID)
		for j := range localities[i].Endpoints {
			e := &localities[i].Endpoints[j]
			byAddress[e.Address] = here
			for _, address := range e.Additional {
				byAddress[address] = here
			}
		}
	}
	l.byAddress.Store(&byAddress)
}

// Labels returns the label of the endpoint with the address, or nil. The caller must not change
// it.
func (l *Locality) Labels(address string) map[string]string {
	switch {
	case l == nil:
		return nil
	case l.labels != nil:
		return l.labels
	}
	if m := l.byAddress.Load(); m != nil && (*m)[address] != nil {
		return (*m)[address].labels
	}
	return nil
}

// Name returns the value of the label, or "".
func (l *Locality) Name(address string) string { return l.Labels(address)[labelLocality] }

// foundLocality is where a version of the cluster's endpoints has the endpoint of a connection.
type foundLocality struct {
	in       *xdsresource.Endpoints
	locality *xdsresource.Locality // nil: nowhere
}

// LocalityIn returns the locality of the endpoint in the endpoints of its cluster, or nil: a
// connection that is kept for sessions may be to an endpoint that was removed since. It is for
// RPCs with a trace, so that others do not pay for an index: the first call for in searches all
// endpoints, later ones remember.
func (c *Conn) LocalityIn(in *xdsresource.Endpoints) *xdsresource.Locality {
	f := c.found.Load()
	if f == nil || f.in != in {
		f = &foundLocality{in, localityOf(in.Localities, c.address)}
		c.found.Store(f)
	}
	return f.locality
}

// localityOf returns the first locality with an endpoint at the address, or nil.
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
