package leaf

import (
	"slices"

	"github.com/dynxds/dynxds/internal/xdsresource"
)

// localityCache is where a version of the cluster's endpoints has the endpoint of a SubConn.
type localityCache struct {
	in       *xdsresource.Endpoints
	locality *xdsresource.Locality // nil: nowhere
}

// LocalityIn returns the locality of the endpoint in the endpoints of its cluster, or nil: a
// connection that is kept for sessions may be to an endpoint that was removed since. It is for
// RPCs with a trace, so that others do not pay for an index: the first call for in searches all
// endpoints, later ones remember.
func (s *SubConn) LocalityIn(in *xdsresource.Endpoints) *xdsresource.Locality {
	p := s.locality.Load()
	if p == nil || p.in != in {
		p = &localityCache{in, localityOf(in.Localities, s.Address())}
		s.locality.Store(p)
	}
	return p.locality
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
