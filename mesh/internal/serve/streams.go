package serve

import (
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/mesh/internal/access"
)

// admit refuses streams of xDS while the server is not ready: it would say that nothing exists, and clients would
// give up what they have of another server. It has no reason for clients, as that names files; the admin pages have it.
//
// admit also bounds the streams of services other than ADS and DPDS, which bound theirs themselves: load reports, health,
// reflection. There may be as many as of those.
func (s *Server) admit(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	method := info.FullMethod
	if !s.ready.Load() && !strings.HasPrefix(method, "/grpc.") { // health, reflection
		return status.Error(codes.Unavailable, "this control plane is not ready, as it has nothing to serve yet: use another one; its /healthz and its log say why")
	}
	if !strings.HasPrefix(method, "/"+ADSService+"/") && !strings.HasPrefix(method, "/envoy.service.dynamic_parameters.v3.") {
		from, _ := peer.FromContext(stream.Context())
		key := access.Peer(from)
		if err := s.others.Take(key, 1); err != nil {
			s.limited("streams")
			return status.Errorf(codes.ResourceExhausted, "the xDS server has %v: use another server, or raise the limit there (--max-streams)", err)
		}
		defer s.others.Give(key, 1)
	}
	return handler(srv, stream)
}

// limited counts what a limit refuses.
func (s *Server) limited(limit string) {
	if s.opts.Metrics != nil {
		s.opts.Metrics.Limited(limit)
	}
}
