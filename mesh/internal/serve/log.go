package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/repeatlog"
)

// host returns the host of a client, which unlike its node it cannot invent. Its port differs with each connection.
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

// refusedConnection logs and counts a connection that a limit ends.
func (s *Server) refusedConnection(limit string, from net.Addr, why error) {
	s.limited(limit)
	s.opts.Log.LogAttrs(context.Background(), slog.LevelWarn, "closed a connection", repeatlog.By(host(from), limit),
		slog.String("peer", from.String()), slog.String("error", why.Error()))
}

// failedHandshake logs and counts a handshake that fails, such as that of a client without the certificate that is wanted. A connection
// that ends between two records of TLS, or is reset, may be a probe of the port.
func (s *Server) failedHandshake(from net.Addr, why error) {
	if op := (*net.OpError)(nil); errors.As(why, &op) && op.Addr != nil {
		why = op.Err // without the client's port, which would make each one another error
	}
	if errors.Is(why, io.EOF) || errors.Is(why, syscall.ECONNRESET) {
		return
	}
	if s.opts.Metrics != nil {
		s.opts.Metrics.HandshakeFailed()
	}
	text := repeatlog.Cut(why.Error(), bounds.ErrorText)
	s.opts.Log.Warn("a TLS handshake failed", repeatlog.By(host(from), text), "peer", from.String(), "error", text)
}

// LogRejection logs a NACK.
func LogRejection(log *slog.Logger, r controlplane.Rejection) {
	node, typeURL := name(r.Node.GetId()), name(r.TypeURL)
	text := repeatlog.Cut(r.NACK.Err.Message(), bounds.ErrorText)
	log.LogAttrs(context.Background(), slog.LevelWarn, "a client rejects a response",
		repeatlog.By(host(r.Peer), node, typeURL, text),
		slog.String("node", node), slog.String("peer", fmt.Sprint(r.Peer)),
		slog.String("type", typeURL), slog.String("version", name(r.NACK.Version)), slog.String("error", text))
}

// name returns a name that a client has chosen, cut.
func name(text string) string { return repeatlog.Cut(text, bounds.LogName) }

// logged logs the begin and the end of each stream.
func (s *Server) logged(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	log := s.opts.Log.With("method", info.FullMethod)
	var addr net.Addr
	if p, ok := peer.FromContext(stream.Context()); ok {
		addr = p.Addr
		log = log.With("peer", addr.String())
	}
	began := time.Now()
	client := &identified{ServerStream: stream, log: log}
	log.Debug("stream begins")
	err := handler(srv, client)
	var node string
	var attrs []slog.Attr
	if of := client.node.Load(); of != nil {
		node = name(*of)
		attrs = append(attrs, slog.String("node", node))
	}
	code := status.Code(err)
	attrs = append(attrs, slog.Duration("lasted", time.Since(began).Round(time.Millisecond)), slog.String("status", code.String()))
	var text string
	if code != codes.OK && code != codes.Canceled {
		text = repeatlog.Cut(status.Convert(err).Message(), bounds.ErrorText) // for instance the fault of a request
		attrs = append(attrs, slog.String("error", text))
	}
	attrs = append(attrs, repeatlog.By(host(addr), node, info.FullMethod, code.String(), text))
	log.LogAttrs(context.Background(), slog.LevelInfo, "stream ended", attrs...)
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
