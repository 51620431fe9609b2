package serve

import (
	"log/slog"
	"sync/atomic"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
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
	client := &identified{ServerStream: stream, log: log}
	log.Debug("stream begins")
	err := handler(srv, client)
	if node := client.node.Load(); node != nil {
		log = log.With("node", *node)
	}
	log.Info("stream ended", "lasted", time.Since(began).Round(time.Millisecond), "status", status.Code(err).String())
	return err
}

// identified is a stream that notes which node its first request is of. Clients
// need not say it again, and requests of other services than ADS do not.
type identified struct {
	grpc.ServerStream
	log *slog.Logger
	// asked is touched only by who receives.
	asked bool
	// node is the node's id. The handler may return before the receiving ends.
	node atomic.Pointer[string]
}

func (s *identified) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err != nil || s.asked {
		return err
	}
	s.asked = true
	if request, ok := m.(interface{ GetNode() *corepb.Node }); ok {
		node := request.GetNode().GetId()
		s.node.Store(&node)
		s.log.Debug("client is known", "node", node, "cluster", request.GetNode().GetCluster(),
			"user_agent", request.GetNode().GetUserAgentName())
	}
	return nil
}
