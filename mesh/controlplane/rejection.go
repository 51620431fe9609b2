package controlplane

import (
	"net"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Rejection is a NACK and its sender.
type Rejection struct {
	// Stream is the ID of the stream, as in ClientStatus.
	Stream uint64
	// Node and Peer are the client, each nil if unknown. They must not be changed.
	Node    *corepb.Node
	Peer    net.Addr
	TypeURL string
	// NACK has the whole error message of the client.
	NACK NACK
}

// report has Options.OnACK or OnNACK called, once the request holds nothing, for what delivery.answered returned. detail is the client's
// error. Only the reader, which alone changes delivery.nack, calls it.
func (s *stream) report(sub *subscription, got Reply, changed time.Time, detail *statuspb.Status) {
	if got == ReplyACK && s.opts.OnACK != nil {
		s.request.report = func() { s.opts.OnACK(sub.typeURL, changed) }
	}
	if got != ReplyNACK || s.opts.OnNACK == nil {
		return
	}
	r := Rejection{Stream: s.id, Node: s.node, TypeURL: sub.typeURL, NACK: *sub.delivery.nack}
	r.NACK.Err = status.New(codes.Code(detail.GetCode()), detail.GetMessage())
	if s.peer != nil {
		r.Peer = s.peer.Addr
	}
	s.request.report = func() { s.opts.OnNACK(r) }
}
