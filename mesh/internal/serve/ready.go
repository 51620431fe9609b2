package serve

import (
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// refuseUnready refuses streams of xDS while the server is not ready: it would say that nothing exists, and clients would
// give up what they have of another server. It has no reason for clients, as that names files; the admin pages have it.
func (s *Server) refuseUnready(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if !s.ready.Load() && !strings.HasPrefix(info.FullMethod, "/grpc.") { // health, reflection
		return status.Error(codes.Unavailable, "this control plane is not ready, as it has nothing to serve yet: use another one; its /healthz and its log say why")
	}
	return handler(srv, stream)
}
