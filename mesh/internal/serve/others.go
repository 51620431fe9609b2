package serve

import (
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/mesh/internal/access"
	"github.com/dynxds/dynxds/mesh/internal/quota"
)

// others bounds the streams of other services than ADS and DPDS, which bound theirs themselves: load reports, health,
// reflection. There may be as many as of those.
type others struct {
	streams *quota.Shares[string]
	refused func(limit string)
}

func newOthers(opts Options) *others {
	o := &others{streams: quota.NewShares[string]("streams", int64(opts.MaxStreams))}
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
	if err := o.streams.Take(key); err != nil {
		if o.refused != nil {
			o.refused("streams")
		}
		return status.Errorf(codes.ResourceExhausted, "the xDS server has %v: use another server, or raise the limit there (--max-streams)", err)
	}
	defer o.streams.Give(key)
	return handler(srv, stream)
}
