package httpfilter

import "sync/atomic"

// HostOverride is how a filter keeps an RPC with an endpoint, and finds out
// which endpoint the RPC went to (gRFCs A55, A60, A75). A filter makes one for
// an RPC and sets RPC.HostOverride to it. All attempts of the RPC share it.
//
// The fields are not changed once the RPC is handed on; the methods are safe for
// concurrent use.
type HostOverride struct {
	// Addresses are addresses ("host:port") of the wanted endpoint, in order of
	// preference. The RPC goes to the first one that the cluster has with a health
	// status in override_host_status and that is, or can be, connected. If there
	// is none, the load-balancing policy picks. Empty: the policy picks.
	Addresses []string

	cluster atomic.Pointer[string]
	host    atomic.Pointer[string]
}

// Cluster returns the cluster that the RPC was last sent to, as routes name it.
// Empty: none so far.
func (o *HostOverride) Cluster() string { return valueOf(&o.cluster) }

// Host returns the addresses of the endpoint that was last picked for the RPC,
// separated by commas, beginning with the one in use. Empty: none so far.
func (o *HostOverride) Host() string { return valueOf(&o.host) }

// SetCluster is for the router of the RPC.
func (o *HostOverride) SetCluster(name string) { o.cluster.Store(&name) }

// SetHost is for the picker. It keeps the pointer and does not allocate.
func (o *HostOverride) SetHost(addresses *string) { o.host.Store(addresses) }

func valueOf(p *atomic.Pointer[string]) string {
	if s := p.Load(); s != nil {
		return *s
	}
	return ""
}
