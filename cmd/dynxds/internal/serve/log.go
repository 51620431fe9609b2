package serve

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// logged tells of the beginning and the end of each stream.
func (s *Server) logged(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	log := s.opts.Log.With("method", info.FullMethod)
	if p, ok := peer.FromContext(stream.Context()); ok {
		log = log.With("peer", p.Addr.String())
	}
	began := time.Now()
	log.Debug("stream begins")
	err := handler(srv, stream)
	log.Info("stream ended", "lasted", time.Since(began).Round(time.Millisecond), "status", status.Code(err).String())
	return err
}
