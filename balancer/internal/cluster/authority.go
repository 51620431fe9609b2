package cluster

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/internal/decision"
)

// setAuthority makes the hostname of the endpoint that was picked the authority of an RPC
// whose route has auto_host_rewrite (gRFC A81, "xds_cluster_impl LB Policy Changes"). gRPC
// checks the authority against the server's certificate. If the application has set
// grpc.CallAuthority, gRPC uses that instead.
func setAuthority(result *balancer.PickResult, d *decision.Decision, sc *conns.Conn) {
	if d == nil || d.Extra == nil || !d.Extra.AutoHost {
		return
	}
	if authority := d.AuthorityFor(sc.Hostname()); authority != "" {
		result.Metadata = metadata.Join(result.Metadata, metadata.Pairs(":authority", authority))
	}
}
