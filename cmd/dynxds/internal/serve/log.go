package serve

import (
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/repeatlog"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

// ClientKey identifies a client in the log by its node and its host; its port differs with each
// connection.
func ClientKey(node string, peer net.Addr) string {
	if peer == nil {
		return node
	}
	return node + " at " + host(peer)
}

// host returns the host of a client, which unlike its node it cannot invent.
func host(peer net.Addr) string {
	if peer == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(peer.String())
	if err != nil {
		return peer.String()
	}
	return host
}

// RejectionEvent is a NACK, for a log.
func RejectionEvent(r controlplane.Rejection) repeatlog.Event {
	return repeatlog.Event{
		Level: slog.LevelWarn, Message: "a client rejects a response",
		Client: ClientKey(r.Node.GetId(), r.Peer), Peer: host(r.Peer), Subject: r.TypeURL, Text: r.NACK.Err.Message(),
		Attrs: []slog.Attr{
			slog.String("node", r.Node.GetId()), slog.String("peer", fmt.Sprint(r.Peer)),
			slog.String("type", r.TypeURL), slog.String("version", r.NACK.Version),
		},
	}
}

// logged logs the begin and the end of each stream.
func (s *Server) logged(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	log := s.opts.Log.With("method", info.FullMethod)
	attrs := []slog.Attr{slog.String("method", info.FullMethod)}
	var addr net.Addr
	if p, ok := peer.FromContext(stream.Context()); ok {
		addr = p.Addr
		log = log.With("peer", addr.String())
		attrs = append(attrs, slog.String("peer", addr.String()))
	}
	began := time.Now()
	client := &identified{ServerStream: stream, log: log}
	log.Debug("stream begins")
	err := handler(srv, client)
	var id string
	if node := client.node.Load(); node != nil {
		id = *node
		attrs = append(attrs, slog.String("node", id))
	}
	code := status.Code(err)
	end := repeatlog.Event{
		Level: slog.LevelInfo, Message: "stream ended",
		Client: ClientKey(id, addr), Peer: host(addr), Subject: info.FullMethod + " " + code.String(),
		Attrs: append(attrs, slog.Duration("lasted", time.Since(began).Round(time.Millisecond)), slog.String("status", code.String())),
	}
	if code != codes.OK && code != codes.Canceled {
		end.Text = status.Convert(err).Message() // for instance the fault of a request
	}
	s.ends.Add(end)
	return err
}

// identified is a stream that records the node of its first request. Later requests need not have it,
// and those of other services than ADS never do.
type identified struct {
	grpc.ServerStream
	log *slog.Logger
	// asked is used only by the receiving goroutine.
	asked bool
	// node is the node's id. The handler may return before receiving ends.
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
