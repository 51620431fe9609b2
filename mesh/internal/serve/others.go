package serve

import (
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/mesh/internal/access"
)

// others bounds the streams of other services than ADS and DPDS, which bound theirs themselves: load reports, health,
// reflection. There may be as many as of those.
type others struct {
	quota   *bounds.Quota
	refused func(limit string)

	mu    sync.Mutex
	peers map[string]*bounds.Share
}

func newOthers(opts Options) *others {
	o := &others{quota: bounds.NewQuota("streams", int64(opts.MaxStreams)), peers: map[string]*bounds.Share{}}
	if opts.Metrics != nil {
		o.refused = opts.Metrics.Limited
	}
	return o
}

func (o *others) intercept(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if strings.HasPrefix(info.FullMethod, "/"+ADSService+"/") || strings.HasPrefix(info.FullMethod, "/envoy.service.dynamic_parameters.v3.") {
		return handler(srv, stream)
	}
	from, _ := peer.FromContext(stream.Context())
	key := access.Peer(from)
	if err := o.take(key); err != nil {
		if o.refused != nil {
			o.refused("streams")
		}
		return status.Errorf(codes.ResourceExhausted, "the xDS server has %v: use another server, or raise the limit there (--max-streams)", err)
	}
	defer o.give(key)
	return handler(srv, stream)
}

func (o *others) take(key string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	share := o.peers[key]
	if share == nil {
		share = o.quota.Share()
	}
	if err := share.Take(1); err != nil {
		return err
	}
	o.peers[key] = share
	return nil
}

func (o *others) give(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	share := o.peers[key]
	if share.Give(1); share.Held() == 0 {
		delete(o.peers, key)
	}
}
