package cluster

import (
	"sync"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/balancer/internal/leaf"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// hostnames returns the hostnames of endpoints by their addresses. The map is made
// when an RPC first asks for it: most clusters never have one that does.
type hostnames func() map[string]string

func hostnamesOf(e *xdsresource.Endpoints) hostnames {
	return sync.OnceValue(func() map[string]string {
		byAddress := make(map[string]string)
		for i := range e.Localities {
			for j := range e.Localities[i].Endpoints {
				one := &e.Localities[i].Endpoints[j]
				if one.Hostname == "" {
					continue
				}
				byAddress[one.Address] = one.Hostname
				for _, additional := range one.Additional {
					byAddress[additional] = one.Hostname
				}
			}
		}
		return byAddress
	})
}

// setAuthority makes the hostname of the endpoint that was picked the authority of
// an RPC whose route has auto_host_rewrite (gRFC A81, "xds_cluster_impl LB Policy
// Changes"). gRPC checks it against the server's certificate, and keeps to
// grpc.CallAuthority if the application has used that.
func (h hostnames) setAuthority(result *balancer.PickResult, d *decision.Decision, sc *leaf.SubConn) {
	if d == nil || d.Extra == nil || !d.Extra.AutoHost {
		return
	}
	if authority := d.AuthorityFor(h()[sc.Address()]); authority != "" {
		result.Metadata = metadata.Join(result.Metadata, metadata.Pairs(":authority", authority))
	}
}
