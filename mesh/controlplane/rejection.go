package controlplane

import (
	"net"

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

// report calls Options.OnACK or OnNACK for an answer. detail is the client's error.
func (s *stream) report(sub *subscription, got verdict, detail *statuspb.Status) {
	if got.reply == ReplyACK && s.opts.OnACK != nil {
		s.opts.OnACK(sub.typeURL, got.changed)
	}
	if got.reply != ReplyNACK || s.opts.OnNACK == nil {
		return
	}
	r := Rejection{Stream: s.id, Node: s.node, TypeURL: sub.typeURL, NACK: *got.nack}
	r.NACK.Err = status.New(codes.Code(detail.GetCode()), detail.GetMessage())
	if s.peer != nil {
		r.Peer = s.peer.Addr
	}
	s.opts.OnNACK(r)
}
